/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/program.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/config/torch_env.h"
#include "launcher/options/habits.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/str.h"

/* As torchrun's --run-path: sys.argv is the script and its arguments, __name__ is __main__, and an exception goes into
 * the error file. */
static const char runpy_code[] =
    "import runpy, sys\n"
    "sys.argv = sys.argv[1:]\n"
    "try:\n"
    "    runpy.run_path(sys.argv[0], run_name='__main__')\n"
    "except Exception as e:\n"
    "    import json, os, time, traceback\n"
    "    info = {'py_callstack': traceback.format_exc(),\n"
    "            'timestamp': str(int(time.time()))}\n"
    "    error = {'message': f'{type(e).__name__}: {e}', 'extraInfo': info}\n"
    "    try:\n"
    "        with open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w') as file:\n"
    "            json.dump({'message': error}, file)\n"
    "    except (KeyError, OSError):\n"
    "        pass\n"
    "    raise\n";

enum what {
    WHAT_NOTHING,
    WHAT_SCRIPT,
    WHAT_NATIVE
};

static bool has_suffix(const char *text, const char *suffix)
{
    size_t length = strlen(text);
    size_t end = strlen(suffix);

    return length >= end && strcmp(text + length - end, suffix) == 0;
}

static enum what look_at(const char *path)
{
    char magic[4] = "";
    struct stat info;
    ssize_t got;
    int fd;

    if (stat(path, &info) < 0)
        return WHAT_NOTHING;
    if (!S_ISREG(info.st_mode) || (fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        return S_ISREG(info.st_mode) && access(path, X_OK) == 0 ? WHAT_NATIVE
                                                                : WHAT_SCRIPT;
    got = read(fd, magic, sizeof magic);
    close(fd);
    if (got == 4 && memcmp(magic,
                           "\x7f"
                           "ELF",
                           4) == 0)
        return WHAT_NATIVE;
    if (got >= 2 && memcmp(magic, "#!", 2) == 0 && access(path, X_OK) == 0)
        return WHAT_NATIVE;
    return WHAT_SCRIPT;
}

/* True for a regular file that begins with a "#!" line without "python"; copies that line. */
static bool needs_other_interpreter(const char *path, char *line, size_t size)
{
    struct stat info;
    FILE *file = stat(path, &info) == 0 &&
                         S_ISREG(info.st_mode) /* a pipe is read once */
                     ? fopen(path, "re")
                     : NULL;
    bool is_other = file && fgets(line, (int)size, file) &&
                    ct_starts_with(line, "#!") && !strstr(line, "python");

    if (file)
        (void)fclose(file);
    if (is_other)
        line[strcspn(line, "\r\n")] = '\0';
    return is_other && strlen(line) > 2;
}

/* Each worker looks for it again. */
static bool can_be_run(const char *name, char *const *env)
{
    char path[PATH_MAX];

    return ct_env_find_program(path, sizeof path, env, name);
}

/* Programs such as ctrun-mnist are installed beside ctrun, which need not be in PATH. */
static bool is_beside_us(const char *name, char *dst, size_t size)
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash;

    if (length <= 0)
        return false;
    self[length] = '\0';
    if (!(slash = strrchr(self, '/')))
        return false;
    *slash = '\0';
    return ct_append(self, sizeof self, "/%s", name) > 0 &&
           ct_env_find_program(dst, size, NULL, self);
}

static int fail_missing(const char *name, bool is_of_path, struct ctrun_error *err)
{
    const int failed = access(name, F_OK) == 0 ? 0 : errno;
    const char *why = failed == 0 || failed == ENOENT || failed == ENOTDIR
                          ? "no such file"
                          : strerror(failed);
    const char *meaning = habits_program(name);
    char directory[PATH_MAX];

    if (!getcwd(directory, sizeof directory))
        (void)ct_copy(directory, sizeof directory,
                      "the current directory, which was removed: cd to it again");
    if (is_of_path && failed == 0)
        return ct_fail(err, CTRUN_E_EXEC,
                       "%s: no program of that name in PATH; to run the file in %s, "
                       "write ./%s",
                       name, directory, name);
    if (!is_of_path) /* whether it exists is hidden from this user: as for a shell, 126 */
        return ct_fail(err, failed == EACCES ? -ENOEXEC : CTRUN_E_EXEC,
                       "%s: %s (in %s)%s", name, why, directory, meaning);
    return ct_fail(err, CTRUN_E_EXEC,
                   "%s: %s in %s, and no program of that name in PATH%s", name, why,
                   directory, meaning);
}

/* PROGRAM as execvp() would find it, and beside ctrun. */
static int find_program(struct program *out, const char *name, char *const *env,
                        struct ctrun_error *err)
{
    if (ct_copy(out->path, sizeof out->path, name) < 0)
        return ct_fail(err, CTRUN_E_EXEC, "%.60s...: the name is too long", name);
    if (strchr(name, '/'))
        return access(name, F_OK) == 0 ? 0 : fail_missing(name, false, err);
    if (can_be_run(name, env) || is_beside_us(name, out->path, sizeof out->path))
        return 0;
    return fail_missing(name, true, err);
}

static void set_direct(struct program *out, const char *name)
{
    out->mode = PROGRAM_DIRECT;
    out->name = name;
    out->args++;
    if (out->local_rank_at >= 0)
        out->local_rank_at--;
}

static int set_native(struct program *out, const char *name, char *const *env,
                      struct ctrun_error *err)
{
    set_direct(out, name);
    /* A file found by its plain name lies in this directory, not in PATH. */
    if (!strchr(name, '/') && look_at(name) == WHAT_NATIVE)
        return ct_format(out->path, sizeof out->path, "./%s", name) < 0 ? -ENAMETOOLONG
                                                                        : 0;
    return find_program(out, name, env, err);
}

/* A folder is a program for Python when it has that file. */
static int check_folder(const char *name, struct ctrun_error *err)
{
    char path[PATH_MAX];
    struct stat info;

    if (stat(name, &info) < 0 || !S_ISDIR(info.st_mode) ||
        ct_format(path, sizeof path, "%s/__main__.py", name) < 0 ||
        access(path, F_OK) == 0)
        return 0;
    return ct_fail(err, -ENOEXEC,
                   "%s: is a folder without __main__.py: name the script in it", name);
}

static int check_python(const char *python, char *const *env, struct ctrun_error *err)
{
    const bool is_path = strchr(python, '/');
    const bool is_there = is_path && access(python, F_OK) == 0;

    if (can_be_run(python, env))
        return 0;
    return ct_fail(err, is_there ? -ENOEXEC : CTRUN_E_EXEC, "PYTHON_EXEC=%s: %s",
                   python,
                   !is_path   ? "no such program in PATH"
                   : is_there ? "it cannot be executed"
                              : strerror(errno));
}

static int set_python(struct program *out, char *const *env, struct ctrun_error *err)
{
    const char *python = ct_env_find(env, "PYTHON_EXEC");
    int rc;

    if (!python || !*python)
        python = can_be_run("python3", env)  ? "python3"
                 : can_be_run("python", env) ? "python"
                                             : NULL;
    if (!python)
        return ct_fail(err, CTRUN_E_EXEC,
                       "%s: no python3 and no python in PATH; set PYTHON_EXEC, or pass "
                       "--no-python for a native program",
                       out->args[0]);
    if ((rc = check_python(python, env, err)) < 0)
        return rc;
    if (out->mode != PROGRAM_MODULE && (rc = check_folder(out->args[0], err)) < 0)
        return rc;
    out->head[0] = "-u";
    if (out->mode == PROGRAM_MODULE)
        out->head[1] = "-m";
    if (out->mode == PROGRAM_RUN_PATH) {
        out->head[1] = "-c";
        out->head[2] = runpy_code;
    }
    out->name = out->mode == PROGRAM_RUN_PATH ? "run_script_path" : out->args[0];
    out->torch = torch_env_find(python, env);
    return ct_copy(out->path, sizeof out->path, python) < 0 ? -ENAMETOOLONG : 0;
}

/* ${local_rank}.py: a name that differs for each worker. */
static bool is_template(const char *name)
{
    return strchr(name, '$') && (strstr(name, "rank") || strchr(name, '{'));
}

int program_resolve(struct program *out, const struct options *options,
                    char *const *env, struct ctrun_error *err)
{
    const char *name = options->program[0];
    bool module = options->values[OPTION_MODULE].is_on;
    char line[128];

    *out = (struct program){.args = options->program, .mode = PROGRAM_PYTHON};
    if (!*name)
        return ct_fail(
            err, CTRUN_E_EXEC,
            "the name of the program is empty; is a variable of the shell empty?");
    out->is_no_python = options->values[OPTION_NO_PYTHON].is_on;
    out->local_rank_at = options->is_launch && !options->values[OPTION_USE_ENV].is_on
                             ? 1
                             : -1; /* after the script's name */
    if (options->values[OPTION_RUN_PATH].is_on) {
        out->mode = PROGRAM_RUN_PATH;
        return access(name, F_OK) == 0 || is_template(name)
                   ? set_python(out, env, err)
                   : fail_missing(name, false, err);
    }
    if (options->values[OPTION_NO_PYTHON].is_on) {
        if (out->local_rank_at >= 0)
            return ct_fail(err, -EINVAL,
                           "When using the '--no-python' flag, you must also set the "
                           "'--use-env' flag.");
        if (module)
            return ct_fail(err, -EINVAL,
                           "Don't use both the '--no-python' flag and the "
                           "'--module' flag at the same time.");
        set_direct(out, name);
        return find_program(out, name, env, err);
    }
    if (module) {
        out->mode = PROGRAM_MODULE;
        return set_python(out, env, err);
    }
    if (strcmp(name, "-") == 0 || is_template(name) ||
        (has_suffix(name, ".py") && look_at(name) != WHAT_NOTHING))
        return set_python(out, env, err);
    switch (look_at(name)) {
    case WHAT_SCRIPT:
        if (needs_other_interpreter(name, line, sizeof line))
            return ct_fail(err, -ENOEXEC,
                           "%s: begins with %s and is not executable: chmod +x it, or "
                           "write --no-python %s %s",
                           name, line, line + 2 + strspn(line + 2, " "), name);
        return set_python(out, env, err);
    case WHAT_NATIVE: return set_native(out, name, env, err);
    case WHAT_NOTHING: break;
    }
    return set_native(out, name, env, err);
}

int program_resolve_like(struct program *out, const struct program *like, char **words,
                         char *const *env, struct ctrun_error *err)
{
    struct options options = {.program = words, .is_launch = like->local_rank_at >= 0};

    options.values[OPTION_MODULE].is_on = like->mode == PROGRAM_MODULE;
    options.values[OPTION_RUN_PATH].is_on = like->mode == PROGRAM_RUN_PATH;
    options.values[OPTION_NO_PYTHON].is_on = like->is_no_python;
    options.values[OPTION_USE_ENV].is_on = like->is_no_python;
    return program_resolve(out, &options, env, err);
}
