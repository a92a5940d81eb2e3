/* SPDX-License-Identifier: Apache-2.0 */
/* The words are those of glibc's ld.so (elf/dl-load.c, elf/dl-version.c), of CPython's
 * exceptions and of PyTorch's CUDA allocator. What is between two known pieces is the name. */
#include "agent/words.h"

#include <string.h>

#include "agent/facts.h"

struct phrase {
    const char *before; /* the name */
    const char *after;
    const char *likely; /* in front of the name */
    const char *rest;   /* behind it */
    const char *remedy;
};

static const struct phrase phrases[] = {
    {"error while loading shared libraries: ", ": ",
     "the program never really started: shared library ",
     " is missing or unusable here",
     "ldd the program on this node; install the library, or set LD_LIBRARY_PATH"},
    {"ImportError: ", ": cannot open shared object file",
     "the program never really started: shared library ", " is missing here",
     "install the library on this node, or set LD_LIBRARY_PATH"},
    {": version `", "' not found",
     "the program never really started: it was built against ", ", newer than here",
     "build it on this system, or use the same image on all nodes"},
    {"ModuleNotFoundError: No module named '", "'",
     "the program never really started: Python module ", " is missing here",
     "install it for the interpreter in use (PYTHON_EXEC or the first python3 in "
     "PATH)"},
    {"ImportError: cannot import name '", "'",
     "the program never really started: a Python module has no ", "",
     "compare the versions of that module with those the program was written for"},
    {"can't open file '", "'",
     "the program never really started: Python finds no script ", " on this node",
     "check the path and the working directory; do all nodes see that file system?"},
    {"SyntaxError: ", "\n",
     "the program never really started: Python cannot parse it (", ")",
     "fix the script, or run it with the Python it was written for"},
    {"CUDA out of memory", "", "GPU memory is full", ", not host memory",
     "smaller batches; is another process on the GPU (nvidia-smi)?"},
};

/* The last place counts: what comes after an earlier one may have got over it. */
static const char *find_last(const char *text, const char *piece)
{
    const char *found = NULL;

    for (const char *at = text; (at = strstr(at, piece)); at++)
        found = at;
    return found;
}

void words_explain(struct ct_failure *failure)
{
    for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++) {
        const struct phrase *phrase = &phrases[i];
        const char *name = find_last(failure->text, phrase->before);
        const char *end;

        if (!name)
            continue;
        name += strlen(phrase->before);
        end = *phrase->after == '\n' ? name + strcspn(name, "\n")
                                     : strstr(name, phrase->after);
        if (!end || memchr(name, '\n', (size_t)(end - name)) || end - name > 200)
            continue;
        facts_add(failure, "likely", "%s%.*s%s", phrase->likely, (int)(end - name),
                  name, phrase->rest);
        facts_add(failure, "do", "%s", phrase->remedy);
        return;
    }
}
