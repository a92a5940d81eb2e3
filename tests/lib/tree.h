/* SPDX-License-Identifier: Apache-2.0 */
/* Removes a directory of a test with all that is in it. */
#ifndef TESTS_LIB_TREE_H
#define TESTS_LIB_TREE_H

#include <ftw.h>
#include <stdio.h>

static int tree_remove_entry(const char *path, const struct stat *info, int type,
                             struct FTW *where)
{
    (void)info;
    (void)type;
    (void)where;
    return remove(path);
}

static inline int test_remove_tree(const char *root)
{
    return nftw(root, tree_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
