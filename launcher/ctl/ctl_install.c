/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl install: copies ctrun, ctrunctl and ctrund from this program's folder into another
 * folder, for a job container without them (an init container runs it, with a volume that both
 * containers mount).
 *
 * Each program is written under another name and then renamed, so that no half-written program
 * is started, and a program that runs from that folder is not changed. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/ctl/ctl.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/whole_file.h"
#include "worker_sdk/wire/contract.h"

enum {
    CHUNK = 1 << 16
};

static const char *const programs[] = {"ctrun", "ctrunctl", "ctrund"};

static const struct ctl_option options[] = {
    {.name = "shared",
     .help = "copy programs that need the shared libraries of this system, too"},
    {0}};

/* True when this program is linked dynamically: it does not start in an image without its
 * libraries. */
static bool has_loader(void)
{
    return getauxval(AT_BASE) != 0;
}

static int own_folder(char *out, size_t size, struct ctrun_error *err)
{
    const ssize_t length = readlink("/proc/self/exe", out, size - 1);
    char *slash;

    if (length < 0)
        return ct_fail(err, -errno, "/proc/self/exe: %s; mount /proc", strerror(errno));
    out[length] = '\0';
    slash = strrchr(out, '/');
    if (!slash)
        return ct_fail(err, CTRUN_E_NOT_FOUND, "%s: not a path", out);
    *slash = '\0';
    return 0;
}

/* Calls fsync() before the caller's rename(): after a crash the name is the old program or the
 * complete new one. */
static int copy_bytes(int to, int from)
{
    static char chunk[CHUNK];
    ssize_t n;
    int rc = 0;

    while (rc >= 0 && (n = read(from, chunk, sizeof chunk)) != 0)
        rc = n < 0 ? -errno : ct_write_all(to, chunk, (size_t)n);
    if (rc >= 0 && (fchmod(to, 0755) < 0 || fsync(to) < 0))
        rc = -errno;
    return rc;
}

/* `temporary` is renamed, or removed after an error. */
static int copy_file(const char *to, const char *temporary, const char *from,
                     struct ctrun_error *err)
{
    const int in = open(from, O_RDONLY | O_CLOEXEC);
    int out, rc;

    if (in < 0)
        return ct_fail(err, -errno, "%s: %s", from, strerror(errno));
    out = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0700);
    rc = out < 0 ? -errno : copy_bytes(out, in);
    if (out >= 0 && close(out) < 0 && rc >= 0)
        rc = -errno;
    if (rc >= 0 && rename(temporary, to) < 0)
        rc = -errno;
    if (rc < 0 && out >= 0)
        (void)unlink(temporary);
    close(in);
    return rc < 0 ? ct_fail(err, rc, "%s: %s", to, strerror(-rc)) : 0;
}

static int install_program(const char *folder, const char *own, const char *name,
                           struct ctrun_error *err)
{
    char from[PATH_MAX], to[PATH_MAX], temporary[PATH_MAX];
    int rc;

    if (ct_format(from, sizeof from, "%s/%s", own, name) < 0 ||
        ct_format(to, sizeof to, "%s/%s", folder, name) < 0 ||
        ct_format(temporary, sizeof temporary, "%s/.%s.%d", folder, name,
                  (int)getpid()) < 0)
        return ct_fail(err, -ENAMETOOLONG, "%s: the name is too long", folder);
    rc = copy_file(to, temporary, from, err);
    if (rc >= 0)
        puts(to);
    return rc;
}

/* Makes ctrun-launch, the other name of ctrun. */
static int install_link(const char *folder, struct ctrun_error *err)
{
    char path[PATH_MAX];

    if (ct_format(path, sizeof path, "%s/ctrun-launch", folder) < 0)
        return ct_fail(err, -ENAMETOOLONG, "%s: the name is too long", folder);
    if ((unlink(path) < 0 && errno != ENOENT) || symlink("ctrun", path) < 0)
        return ct_fail(err, -errno, "%s: %s", path, strerror(errno));
    puts(path);
    return 0;
}

static int install(const char *folder, bool is_shared, struct ctrun_error *err)
{
    char own[PATH_MAX];
    int rc;

    if (has_loader() && !is_shared)
        return ct_fail(
            err, CTRUN_E_UNSUPPORTED,
            "these programs need shared libraries, which another image may not have; "
            "take those of the wheel or build with -DCTRUN_STATIC=ON, or pass "
            "--shared");
    if ((rc = own_folder(own, sizeof own, err)) < 0)
        return rc;
    if (mkdir(folder, 0755) < 0 && errno != EEXIST)
        return ct_fail(err, -errno, "%s: %s", folder, strerror(errno));
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if ((rc = install_program(folder, own, programs[i], err)) < 0)
            return rc;
    return install_link(folder, err);
}

static int run(const struct ctl_call *call)
{
    struct ctrun_error err;

    return install(call->words[0], ctl_value(call, "shared") != NULL, &err) < 0
               ? ctl_fail(&err)
               : CT_EXIT_OK;
}

const struct ctl_verb ctl_install = {
    .name = "install",
    .words = "DIR",
    .word_min = 1,
    .word_max = 1,
    .help =
        "copy ctrun, ctrunctl and ctrund into a folder, for a container without them\n"
        "They are taken from the folder of this program, and must be static (those of "
        "the wheel\n"
        "and of the image are). DIR is made if it is not there; older copies in it are "
        "replaced.",
    .options = options,
    .run = run,
};
