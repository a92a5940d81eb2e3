/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/cgroup_path.h"

#include <stdio.h>
#include <stdlib.h>
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

/* The cgroup that is mounted at the folder, "/" where mountinfo does not name it. Lines of mountinfo:
 * "36 35 0:30 /docker/0123 /sys/fs/cgroup/memory rw ...". A later mount hides an earlier one. */
static void find_mounted(char top[PATH_MAX], const char *membership, const char *folder)
{
    char path[PATH_MAX], root[PATH_MAX], point[PATH_MAX];
    const char *slash = strrchr(membership, '/');
    char *line = NULL;
    size_t size = 0;
    FILE *file;

    (void)ct_copy(top, PATH_MAX, "/");
    if (!slash ||
        ct_format(path, sizeof path, "%.*s/mountinfo", (int)(slash - membership),
                  membership) < 0 ||
        !(file = fopen(path, "re")))
        return;
    while (getline(&line, &size, file) > 0)
        if (sscanf(line, "%*s %*s %*s %4095s %4095s", root, point) == 2 &&
            strcmp(point, folder) == 0)
            (void)ct_copy(top, PATH_MAX, root);
    free(line);
    (void)fclose(file);
}

/* `path` is the rest of a line of `membership`; out->directory is the folder of its hierarchy. */
static bool take(struct cgroup_path *out, const char *membership, const char *path)
{
    char top[PATH_MAX];
    size_t length = strcspn(path, "\n"), above;

    find_mounted(top, membership, out->directory);
    above = strcmp(top, "/") == 0 ? 0 : strlen(top);
    if (above <= length && memcmp(path, top, above) == 0 &&
        (above == length || path[above] == '/')) {
        path += above;
        length -= above;
    }
    if (length == 1)
        length = 0; /* "/": the root, or the only cgroup that a container sees */
    out->root_length = strlen(out->directory);
    if (ct_append(out->directory, sizeof out->directory, "%.*s", (int)length, path) >=
        0) {
        if ((out->is_own = access(out->directory, F_OK) == 0))
            return true;
        while (cgroup_path_go_up(out))
            if (access(out->directory, F_OK) == 0)
                return true;
    }
    *out = (struct cgroup_path){0};
    return false;
}

bool cgroup_path_find(struct cgroup_path *out, const char *controller,
                      const char *membership, const char *root)
{
    char text[MEMBERSHIP_MAX], label[32];
    const char *path;

    *out = (struct cgroup_path){0};
    (void)ct_small_file_read(text, sizeof text, membership);
    (void)ct_format(label, sizeof label, ":%s:/", controller);
    out->is_v1 = true;
    if ((path = strstr(text, label)) &&
        ct_format(out->directory, sizeof out->directory, "%s/%s", root, controller) >=
            0 &&
        take(out, membership, path + strlen(label) - 1))
        return true;
    *out = (struct cgroup_path){0};
    path = ct_small_file_find(text, "0::");
    return path && ct_copy(out->directory, sizeof out->directory, root) >= 0 &&
           take(out, membership, path);
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
