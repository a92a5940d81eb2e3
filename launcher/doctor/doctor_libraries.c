/* SPDX-License-Identifier: Apache-2.0 */
/* The libraries that ctrun(1) loads when it needs them. They are tried here, and stay loaded. */
#include <dlfcn.h>

#include "launcher/doctor/doctor.h"

struct library {
    const char *what;
    bool is_built; /* this ctrun can use it */
    const char *needed_by;
    const char *files[2]; /* one of them is enough */
    const char *package;  /* Debian's */
};

static const struct library libraries[] = {
    {"libcurl",
     CTRUN_HAS_CURL,
     "--rdzv-backend=etcd or --ha",
     {"libcurl.so.4", "libcurl-gnutls.so.4"},
     "libcurl4"},
    {"MUNGE", CTRUN_HAS_MUNGE, "--auth=munge", {"libmunge.so.2"}, "libmunge2"},
};

bool doctor_can_load(void)
{
    return !CTRUN_IS_STATIC;
}

static const char *find_file(const struct library *library)
{
    for (size_t i = 0; i < 2 && library->files[i]; i++)
        if (dlopen(library->files[i], RTLD_LAZY | RTLD_LOCAL))
            return library->files[i];
    return NULL;
}

void doctor_libraries(struct doctor *doctor)
{
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        const struct library *library = &libraries[i];
        const char *file = NULL;

        if (!library->is_built)
            (void)doctor_add(doctor, DOCTOR_OK, library->what,
                             "this ctrun was built without it: no %s",
                             library->needed_by);
        else if (!doctor_can_load())
            (void)doctor_add(doctor, DOCTOR_OK, library->what, "linked into ctrun");
        else if ((file = find_file(library)))
            (void)doctor_add(doctor, DOCTOR_OK, library->what, "%s", file);
        else
            (void)doctor_add(doctor, DOCTOR_OK, library->what,
                             "none: no %s (Debian: apt install %s)", library->needed_by,
                             library->package);
    }
}
