/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent reads from a crash record and from the modules that it names. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/postmortem/crash.h"
#include "agent/postmortem/crash_record.h"
#include "agent/postmortem/elf_symbols.h"
#include "tests/lib/facts_text.h"
#include "tests/lib/test.h"
#include "worker_sdk/client/crash.h"

/* ---- The record ---------------------------------------------------------------------- */

static const char maps[] =
    "1000-2000 r-xp 00001000 fe:01 77                         /opt/my train\n"
    "7000-8000 r-xp 00000000 00:00 0 \n"
    "9000-a000 r-xp 00000000 00:00 0                          [vdso]\n";

static void fill(struct ct_crash *raw)
{
    memset(raw, 0, sizeof *raw);
    raw->magic = CT_CRASH_MAGIC;
    raw->version = CT_CRASH_VERSION;
    raw->state = CT_CRASH_COMPLETE;
    raw->signal = SIGSEGV;
    raw->code = SEGV_MAPERR;
    raw->pid = raw->tid = 812;
    raw->address = 0x10;
    memcpy(raw->thread, "0123456789abcdef", sizeof raw->thread); /* no NUL */
    raw->frames[0] = 0x1100;
    raw->frames[1] = 0x7100;
    raw->frames[2] = 0x9100;
    raw->frames[3] = 0xa000; /* where the walk went wrong */
    raw->frames[4] = 0x1200;
    raw->frame_count = 5;
    memcpy(raw->modules, maps, sizeof maps - 1);
    raw->modules_length = sizeof maps - 1;
}

static struct crash_record *decode(const struct ct_crash *raw, int expected)
{
    struct crash_record *record = calloc(1, sizeof *record);

    assert_int_equal(crash_record_decode(raw, sizeof *raw, record), expected);
    return record;
}

TEST(frames_are_told_by_their_modules_until_there_is_none)
{
    struct ct_crash raw;
    struct crash_record *record;
    char text[256];

    fill(&raw);
    record = decode(&raw, 0);
    assert_int_equal(record->frame_count, 3);
    assert_int_equal(record->module_count, 3);
    assert_string_equal(record->modules[0].path, "/opt/my train");
    assert_int_equal(record->modules[0].inode, 77);
    assert_int_equal(crash_record_lookup(record, 0), 0x1100);
    assert_int_equal(crash_record_lookup(record, 1),
                     0x70ff); /* the call, not the instruction after it */
    crash_record_format_frame(record, 0, text, sizeof text);
    assert_string_equal(text, "0x1100 (my train)");
    record->frames[0].address = 0x4100;
    crash_record_format_frame(record, 0, text, sizeof text);
    assert_string_equal(text, "my train+0x4100");
    memcpy(record->frames[0].function, "train_step", sizeof "train_step");
    record->frames[0].function_offset = 0x1c;
    crash_record_format_frame(record, 0, text, sizeof text);
    assert_string_equal(text, "train_step+0x1c (my train)");
    crash_record_format_frame(record, 1, text, sizeof text);
    assert_string_equal(text, "0x7100 (anonymous memory)");
    crash_record_format_frame(record, 2, text, sizeof text);
    assert_string_equal(text, "0x9100 ([vdso])");
    free(record);
}

static void expect_description(const struct ct_crash *raw, const char *expected)
{
    struct crash_record *record = decode(raw, 0);
    char text[256];

    crash_record_describe(record, text, sizeof text);
    assert_string_equal(text, expected);
    free(record);
}

TEST(a_fault_is_told_in_words)
{
    struct ct_crash raw;

    fill(&raw);
    expect_description(&raw,
                       "address 0x10: nothing is mapped there; in the main thread");
    raw.tid = 813;
    expect_description(&raw, "address 0x10: nothing is mapped there; in thread 813 "
                             "(0123456789abcdef)");
    raw.tid = 812;
    raw.stack = 0x7fff0000;
    raw.address = 0x7ffefff8;
    expect_description(
        &raw, "address 0x7ffefff8: the stack has overflowed; in the main thread");
    raw.address = 0x7fff2000; /* above it */
    expect_description(
        &raw, "address 0x7fff2000: nothing is mapped there; in the main thread");
    raw.code = SI_KERNEL;
    raw.address = raw.stack = 0;
    expect_description(
        &raw, "no valid address, or not aligned for the instruction; in the main "
              "thread");
    raw.code = SI_USER;
    raw.address = 4;
    expect_description(&raw, "sent by process 4; in the main thread");
    raw.address = 812;
    expect_description(&raw, "raised by itself; in the main thread");
    raw.signal = SIGFPE;
    raw.code = 99; /* unknown: of a newer kernel */
    raw.address = 1;
    expect_description(&raw, "address 0x1; in the main thread");
}

TEST(what_is_no_record_is_refused)
{
    struct ct_crash raw;
    struct crash_record *record;

    fill(&raw);
    raw.state = CT_CRASH_EMPTY;
    free(decode(&raw, -ENOENT));
    fill(&raw);
    raw.magic++;
    free(decode(&raw, -EBADMSG));
    fill(&raw);
    raw.version++;
    free(decode(&raw, -EBADMSG));
    fill(&raw);
    raw.frame_count = CT_CRASH_FRAMES_MAX + 1;
    free(decode(&raw, -EBADMSG));
    fill(&raw);
    raw.modules_length = CT_CRASH_MODULES_MAX + 1;
    free(decode(&raw, -EBADMSG));
    fill(&raw);
    record = calloc(1, sizeof *record);
    assert_int_equal(crash_record_decode(&raw, sizeof raw - 1, record), -EBADMSG);
    free(record);
}

/* ---- Modules, by the handler ------------------------------------------------------------ */

TEST(only_executable_mappings_of_frames_are_kept)
{
    static const char text[] =
        "1000-2000 r--p 00001000 fe:01 77 /opt/train\n"
        "2000-3000 r-xp 00001000 fe:01 77 /opt/train\n"
        "3000-4000 r-xp 00001000 fe:01 77 /opt/other\n"
        "zzzz-4000 r-xp nonsense\n"
        "\n"
        "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n";
    struct ct_crash raw = {.frames = {0x2000, 0x2fff, 0x1000}, .frame_count = 3};
    int fds[2];

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    assert_int_equal(write(fds[1], text, sizeof text - 1), sizeof text - 1);
    close(fds[1]);
    ct_crash_find_modules(&raw, fds[0]);
    close(fds[0]);
    raw.modules[raw.modules_length] = '\0';
    assert_string_equal(raw.modules, "2000-3000 r-xp 00001000 fe:01 77 /opt/train\n");
}

TEST(modules_that_do_not_fit_are_left_out)
{
    struct ct_crash raw = {.frames = {0x2000}, .frame_count = 1};
    char line[200];
    int fds[2];

    memset(line, 'x', sizeof line);
    memcpy(line, "2000-3000 r-xp ", 15);
    line[sizeof line - 1] = '\n';
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    for (int i = 0; i < 100; i++) /* 20 KB: a pipe holds 64 */
        assert_int_equal(write(fds[1], line, sizeof line), sizeof line);
    close(fds[1]);
    ct_crash_find_modules(&raw, fds[0]);
    close(fds[0]);
    assert_true(raw.modules_length > CT_CRASH_MODULES_MAX - sizeof line);
    assert_int_equal(raw.modules_length % sizeof line, 0);
}

/* ---- Symbols ------------------------------------------------------------------------- */

struct image {
    Elf64_Ehdr header;
    Elf64_Phdr segment;
    Elf64_Shdr sections[3];
    Elf64_Sym symbols[5];
    char names[32];
};

static void build(struct image *image)
{
    static const char names[] = "\0first\0second\0nosize\0data";

    memset(image, 0, sizeof *image);
    memcpy(image->header.e_ident, ELFMAG, SELFMAG);
    image->header.e_ident[EI_CLASS] = ELFCLASS64;
    image->header.e_ident[EI_DATA] = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
                                         ? ELFDATA2LSB
                                         : ELFDATA2MSB;
    image->header.e_phoff = offsetof(struct image, segment);
    image->header.e_phentsize = sizeof(Elf64_Phdr);
    image->header.e_phnum = 1;
    image->header.e_shoff = offsetof(struct image, sections);
    image->header.e_shentsize = sizeof(Elf64_Shdr);
    image->header.e_shnum = 3;
    image->segment = (Elf64_Phdr){
        .p_type = PT_LOAD, .p_offset = 0x1000, .p_vaddr = 0x401000, .p_filesz = 0x1000};
    image->sections[1] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
                                      .sh_offset = offsetof(struct image, symbols),
                                      .sh_size = sizeof image->symbols,
                                      .sh_entsize = sizeof(Elf64_Sym),
                                      .sh_link = 2};
    image->sections[2] = (Elf64_Shdr){.sh_type = SHT_STRTAB,
                                      .sh_offset = offsetof(struct image, names),
                                      .sh_size = sizeof names};
    memcpy(image->names, names, sizeof names);
    image->symbols[1] = (Elf64_Sym){
        1, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), 0, 1, 0x401100, 0x40};
    image->symbols[2] = (Elf64_Sym){
        7, ELF64_ST_INFO(STB_LOCAL, STT_FUNC), 0, 1, 0x401140, 0x40};
    image->symbols[3] = (Elf64_Sym){
        14, ELF64_ST_INFO(STB_LOCAL, STT_FUNC), 0, 1, 0x401200, 0};
    image->symbols[4] = (Elf64_Sym){
        21, ELF64_ST_INFO(STB_LOCAL, STT_OBJECT), 0, 1, 0x401100, 0x200};
}

static bool read_image(void *context, uint64_t offset, void *dst, size_t length)
{
    if (offset > sizeof(struct image) || length > sizeof(struct image) - offset)
        return false;
    memcpy(dst, (const char *)context + offset, length);
    return true;
}

static int look(struct image *image, uint64_t offset, char name[16], uint64_t *into)
{
    const struct elf_source source = {.context = image, .read = read_image};
    struct elf_place place = {.offset = offset, .name = name, .name_size = 16};
    const int rc = elf_find_functions(&source, &place, 1);

    *into = place.address - place.start;
    return rc;
}

static void expect_function(struct image *image, uint64_t offset, const char *name,
                            uint64_t into)
{
    char found[16];
    uint64_t found_into;

    assert_int_equal(look(image, offset, found, &found_into), 0);
    assert_string_equal(found, name);
    if (*name)
        assert_int_equal(found_into, into);
}

TEST(a_place_is_in_the_function_that_spans_it)
{
    struct image image;

    build(&image);
    expect_function(&image, 0x1100, "first", 0);
    expect_function(&image, 0x113f, "first", 0x3f);
    expect_function(&image, 0x1140, "second", 0);
    expect_function(&image, 0x1180, "", 0);
    expect_function(&image, 0x1210, "nosize", 0x10);
    expect_function(&image, 0x10ff, "", 0);
    expect_function(&image, 0x900, "", 0); /* in no segment */
    image.symbols[2].st_value = 0x401120;  /* in the first segment: the nearest start */
    expect_function(&image, 0x1130, "second", 0x10);
    image.symbols[1].st_value = 0x401130;
    image.symbols[2].st_value = 0x401100;
    expect_function(&image, 0x1138, "first", 8);
    image.symbols[1].st_shndx = SHN_UNDEF; /* defined in another file */
    expect_function(&image, 0x1138, "second", 0x38);
    build(&image);
    image.segment.p_filesz = 0x110;
    expect_function(&image, 0x110f, "first", 0xf);
    expect_function(&image, 0x1110, "", 0); /* beyond the segment */
    build(&image);
    image.sections[1].sh_type = SHT_DYNSYM; /* stripped: only exported symbols */
    expect_function(&image, 0x1100, "first", 0);
}

TEST(more_sections_than_the_header_counts_are_counted_by_the_first)
{
    struct image image;

    build(&image);
    image.header.e_shnum = 0;
    expect_function(&image, 0x1100, "", 0);
    image.sections[0].sh_size = 3;
    expect_function(&image, 0x1100, "first", 0);
}

TEST(files_that_lie_have_no_functions)
{
    char name[16];
    uint64_t into;
    struct image image;

    build(&image);
    image.header.e_ident[EI_CLASS] = ELFCLASS32;
    assert_int_equal(look(&image, 0x1100, name, &into), -ENOEXEC);
    build(&image);
    image.header.e_shoff = UINT64_MAX - 10;
    expect_function(&image, 0x1100, "", 0);
    build(&image);
    image.sections[1].sh_offset = UINT64_MAX - 10;
    expect_function(&image, 0x1100, "", 0);
    build(&image);
    image.sections[1].sh_link = 77;
    expect_function(&image, 0x1100, "", 0);
    build(&image);
    image.sections[2].sh_type = SHT_PROGBITS;
    expect_function(&image, 0x1100, "", 0);
    build(&image);
    image.sections[2].sh_size = 4; /* a name ends where the table ends */
    expect_function(&image, 0x1100, "fir", 0);
    build(&image);
    image.symbols[1].st_name = 1000;
    expect_function(&image, 0x1100, "", 0);
    build(&image);
    image.segment.p_offset = UINT64_MAX;
    expect_function(&image, 0x1100, "", 0);
}

static bool read_file(void *context, uint64_t offset, void *dst, size_t length)
{
    return pread(*(const int *)context, dst, length, (off_t)offset) == (ssize_t)length;
}

TEST(our_own_program_has_names)
{
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    const struct elf_source source = {.context = &fd, .read = read_file};
    char name[32];
    struct elf_place place = {.name = name, .name_size = sizeof name};
    bool is_found = false;

    assert_true(fd >= 0);
    for (uint64_t at = 0; at < 64 << 20 && !is_found; at += 64) {
        place.offset = at;
        assert_int_equal(elf_find_functions(&source, &place, 1), 0);
        is_found = name[0] != '\0';
    }
    assert_true(is_found);
    close(fd);
}

static bool is_caught(int signal)
{
    struct sigaction now;

    assert_int_equal(sigaction(signal, NULL, &now), 0);
    return now.sa_handler != SIG_DFL;
}

TEST(the_last_to_disarm_takes_the_handler_back)
{
    assert_true(ct_crash_arm() >= 0);
    assert_true(ct_crash_arm() >= 0);
    assert_true(is_caught(SIGABRT));
    ct_crash_disarm();
    assert_true(is_caught(SIGABRT));
    ct_crash_disarm();
    assert_false(is_caught(SIGABRT));
}

/* ---- All of it --------------------------------------------------------------------------- */

static int write_record(int fd, const struct ct_crash *raw)
{
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, raw, sizeof *raw, 0), sizeof *raw);
    return fd;
}

TEST(only_memory_in_which_something_crashed_is_a_record)
{
    char path[] = "/tmp/ctrun-crash-test-XXXXXX";
    const int memory = memfd_create("x", MFD_CLOEXEC);
    const int file = mkostemp(path, O_CLOEXEC);
    struct ct_crash raw;

    unlink(path);
    fill(&raw);
    assert_true(crash_is_recorded(write_record(memory, &raw)));
    assert_false(crash_is_recorded(write_record(file, &raw))); /* could block */
    raw.state = CT_CRASH_EMPTY;
    assert_false(crash_is_recorded(write_record(memory, &raw)));
    close(memory);
    close(file);
}

/* This function, and the lines of /proc/self/maps that say where it is. */
static void fill_own(struct ct_crash *raw, uint64_t more_inode)
{
    const uint64_t here = (uint64_t)(uintptr_t)fill_own;
    FILE *maps_file = fopen("/proc/self/maps", "re");
    char line[1024];

    fill(raw);
    raw->frame_count = 2;
    raw->frames[0] = here;
    raw->frames[1] = here + 5; /* a return address */
    assert_non_null(maps_file);
    while (fgets(line, sizeof line, maps_file)) {
        unsigned long long start, end, offset, inode;
        char path[512];

        if (sscanf(line, "%llx-%llx %*s %llx %*s %llu %511[^\n]", &start, &end, &offset,
                   &inode, path) == 5 &&
            here >= start && here < end)
            raw->modules_length = (uint32_t)snprintf(
                raw->modules, sizeof raw->modules,
                "%llx-%llx r-xp %llx 00:00 %llu %s\n", start, end, offset,
                inode + more_inode, path);
    }
    (void)fclose(maps_file);
}

TEST(a_file_that_was_replaced_meanwhile_names_nothing)
{
    struct ct_crash raw;

    for (int is_replaced = 0; is_replaced < 2; is_replaced++) {
        const int fd = memfd_create("x", MFD_CLOEXEC);
        struct ct_failure failure = {0};

        fill_own(&raw, (uint64_t)is_replaced);
        assert_true(crash_explain(&failure, write_record(fd, &raw)));
        assert_int_equal(strstr(facts_text(&failure.facts), "fill_own+0x0 (") != NULL,
                         !is_replaced);
        assert_int_equal(strstr(facts_text(&failure.facts), "fill_own+0x5 (") != NULL,
                         !is_replaced);
        assert_non_null(strstr(facts_text(&failure.facts), "unit_crash_test)"));
        close(fd);
    }
}
