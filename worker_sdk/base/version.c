/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/include/ctrun.h"

#define TEXT(x)                      #x
#define VERSION(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

const char *ctrun_version(void)
{
    return VERSION(CTRUN_VERSION_MAJOR, CTRUN_VERSION_MINOR, CTRUN_VERSION_PATCH);
}
