/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/main.h"

int main(int argc, char **argv)
{
    return main_ctrun(argc, argv);
}
