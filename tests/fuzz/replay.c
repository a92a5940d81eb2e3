/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds every file of a folder to a fuzz target: runs the stored corpus as a plain test, with any
 * compiler. Also feeds each input cut at every length, because short input is where cursors go
 * wrong. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    INPUT_MAX_BYTES = 1 << 20,
    CUT_MAX_BYTES = 4096
};

/* In a block of exactly this size, so that a sanitizer detects the first byte read too far. */
static void feed(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);

    if (!copy)
        abort();
    memcpy(copy, data, size);
    (void)LLVMFuzzerTestOneInput(copy,
                                 size); /* always 0: libFuzzer reserves other values */
    free(copy);
}

static int replay(const char *folder, const char *name)
{
    static uint8_t data[INPUT_MAX_BYTES];
    char path[4096];
    size_t size, cut;
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "re");
    if (!file) {
        perror(path);
        return -1;
    }
    size = fread(data, 1, sizeof data, file);
    fclose(file);
    feed(data, size);
    for (cut = 0; cut < size && cut < CUT_MAX_BYTES; cut++)
        feed(data, cut);
    return 0;
}

int main(int argc, char **argv)
{
    struct dirent *entry;
    int replayed = 0;
    DIR *folder;

    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    folder = opendir(argv[1]);
    if (!folder) {
        perror(argv[1]);
        return 1;
    }
    while ((entry = readdir(folder))) {
        if (entry->d_name[0] == '.')
            continue;
        if (replay(argv[1], entry->d_name) < 0)
            return 1;
        replayed++;
    }
    closedir(folder);
    printf("%d inputs replayed\n", replayed);
    return replayed > 0 ? 0 : 1; /* an empty corpus tests nothing */
}
