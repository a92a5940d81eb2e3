/* SPDX-License-Identifier: Apache-2.0 */
/* hostnames LIST...: prints for each list what `scontrol show hostnames LIST` prints, and then a
 * line ".", or "!" when the list is refused. */
#include <stdio.h>

#include "launcher/batch/hostlist.h"

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        struct hostlist list;
        int rc = hostlist_parse(argv[i], &list, NULL);

        for (size_t k = 0; k < list.count; k++)
            puts(list.names[k]);
        puts(rc < 0 ? "!" : ".");
        hostlist_deinit(&list);
    }
    return 0;
}
