/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/cgroup_path.h"

#include <unistd.h>

#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

enum {
    MEMBERSHIP_MAX = 4 * 4096, /* with version 1, a line for each controller */
    FILE_TEXT_MAX = 1024
};

bool cgroup_path_go_up(struct cgroup_path *cgroup)
{
    if (strlen(cgroup->directory) <= cgroup->root_length)
        return false;
    *strrchr(cgroup->directory, '/') = '\0';
    return true;
}

/* `path` is the rest of a line of `membership`, `hierarchy` its folder: "", or "/" and the controller. */
static bool take(struct cgroup_path *out, const char *root, const char *hierarchy,
                 const char *path)
{
    int length = (int)strcspn(path, "\n");

    if (length == 1)
        length = 0; /* "/": the root, or the only cgroup that a container sees */
    *out = (struct cgroup_path){.is_v1 = *hierarchy != '\0'};
    if (ct_format(out->directory, sizeof out->directory, "%s%s%.*s", root, hierarchy,
                  length, path) >= 0) {
        out->root_length = strlen(out->directory) - (size_t)length;
        do
            if (access(out->directory, F_OK) == 0)
                return true;
        while (cgroup_path_go_up(out));
    }
    *out = (struct cgroup_path){0};
    return false;
}

bool cgroup_path_find(struct cgroup_path *out, const char *controller,
                      const char *membership, const char *root)
{
    char text[MEMBERSHIP_MAX], label[32], hierarchy[32];
    const char *path;

    *out = (struct cgroup_path){0};
    (void)ct_small_file_read(text, sizeof text, membership);
    (void)ct_format(label, sizeof label, ":%s:/", controller);
    (void)ct_format(hierarchy, sizeof hierarchy, "/%s", controller);
    if ((path = strstr(text, label)) &&
        take(out, root, hierarchy, path + strlen(label) - 1))
        return true;
    path = ct_small_file_find(text, "0::");
    return path && take(out, root, "", path);
}

const char *cgroup_path_name(const struct cgroup_path *cgroup)
{
    const char *name = cgroup->directory + cgroup->root_length;

    return *name ? name : "/";
}

static void read_text(char text[FILE_TEXT_MAX], const struct cgroup_path *cgroup,
                      const char *file)
{
    char path[PATH_MAX + 32];

    text[0] = '\0';
    if (*cgroup->directory &&
        ct_format(path, sizeof path, "%s/%s", cgroup->directory, file) >= 0)
        (void)ct_small_file_read(text, FILE_TEXT_MAX, path);
}

bool cgroup_path_read(const struct cgroup_path *cgroup, const char *file, uint64_t *out)
{
    char text[FILE_TEXT_MAX];

    read_text(text, cgroup, file);
    text[strcspn(text, "\n")] = '\0';
    return ct_parse_u64(text, 0, (uint64_t)1 << 62, out) == 0;
}

bool cgroup_path_read_pair(const struct cgroup_path *cgroup, const char *file,
                           uint64_t *first, uint64_t *second)
{
    char text[FILE_TEXT_MAX];
    char *gap;

    read_text(text, cgroup, file);
    text[strcspn(text, "\n")] = '\0';
    if (!(gap = strchr(text, ' ')))
        return false;
    *gap = '\0';
    return ct_parse_u64(text, 0, (uint64_t)1 << 62, first) == 0 &&
           ct_parse_u64(gap + 1, 0, (uint64_t)1 << 62, second) == 0;
}

bool cgroup_path_read_key(const struct cgroup_path *cgroup, const char *file,
                          const char *key, uint64_t *out)
{
    char text[FILE_TEXT_MAX];
    const char *at;

    read_text(text, cgroup, file);
    if (!(at = ct_small_file_find(text, key)))
        return false;
    text[at - text + (ptrdiff_t)strcspn(at, "\n")] = '\0';
    return ct_parse_u64(at, 0, UINT64_MAX, out) == 0;
}
