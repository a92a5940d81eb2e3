/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ctl/ctl.h"

int main(int argc, char **argv)
{
    return ctl_main(argc, argv);
}
