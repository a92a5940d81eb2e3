/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/main.h"

int main(int argc, char **argv)
{
    return main_ctrund(argc, argv);
}
