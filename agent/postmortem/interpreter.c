/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/postmortem/interpreter.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/postmortem/facts.h"

enum {
    LINE_MAX_BYTES = 256 /* BINPRM_BUF_SIZE: the kernel reads no more of the #! line */
};

/* False: no script. */
static bool read_line(char line[LINE_MAX_BYTES + 1], const char *path)
{
    ssize_t length = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd >= 0) {
        length = read(fd, line, LINE_MAX_BYTES);
        close(fd);
    }
    if (length < 2 || memcmp(line, "#!", 2) != 0)
        return false;
    line[length] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return true;
}

bool interpreter_explain_crlf(struct ct_failure *failure, const char *path)
{
    char line[LINE_MAX_BYTES + 1];

    if (!read_line(line, path) || !strchr(line, '\r'))
        return false;
    facts_add(failure, CT_FACT_WHY,
              "its #! line ends in CR LF, as on Windows: the CR counts as part of "
              "the interpreter's name");
    facts_add(failure, CT_FACT_DO, "sed -i 's/\\r$//' %s", path);
    return true;
}

/* Of errors of execve() that are no fault of an interpreter. */
static bool explain_kind(struct ct_failure *failure, const char *path)
{
    struct stat info;

    if (stat(path, &info) < 0 ||
        (!S_ISDIR(info.st_mode) && (!S_ISREG(info.st_mode) || info.st_size > 0)))
        return false;
    if (S_ISDIR(info.st_mode))
        facts_add(failure, CT_FACT_WHY, "it is a folder: name the program in it");
    else
        facts_add(failure, CT_FACT_WHY,
                  "the file is empty: build or copy the program again");
    return true;
}

bool interpreter_explain(struct ct_failure *failure, const char *path)
{
    char line[LINE_MAX_BYTES + 1];
    char *name;

    if (failure->code != ENOENT)
        return explain_kind(failure, path);
    if (interpreter_explain_crlf(failure, path))
        return true;
    if (!read_line(line, path))
        return false;
    name = line + 2 + strspn(line + 2, " \t");
    name[strcspn(name, " \t")] = '\0';
    if (access(name, F_OK) == 0) /* then its own interpreter is missing */
        facts_add(failure, CT_FACT_WHY,
                  "the interpreter of its #! line, %s, needs an interpreter or ld.so "
                  "that is not on this node",
                  name);
    else
        facts_add(failure, CT_FACT_WHY,
                  "the interpreter of its #! line, %s, is not on this node", name);
    return true;
}
