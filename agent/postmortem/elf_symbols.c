/* SPDX-License-Identifier: Apache-2.0 */
/* One pass over a symbol table for all places: finds the function with the highest start that is
 * not above the place, and that does not end below it. Symbols without a size (assembly code)
 * count only when no other fits. */
#include "agent/postmortem/elf_symbols.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"

enum {
    SEGMENTS_MAX = 128,
    SECTIONS_MAX = 65536,
    PLACES_MAX = 64,
    PIECE_SYMBOLS = 512,
    SYMBOLS_MAX = 4 << 20, /* 96 MiB of table: larger than that of any known library */
    SIZELESS_MAX_BYTES = 4096
};

struct tables {
    Elf64_Shdr symbols; /* sh_size 0: there is none */
    Elf64_Shdr names;
};

struct best {
    uint64_t start;
    uint32_t name;
    bool is_found;
    bool has_size;
};

/* Checks for this machine's word size and byte order: no other program can have run here. */
static bool read_header(const struct elf_source *source, Elf64_Ehdr *header)
{
    const unsigned char order = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB
                                                                          : ELFDATA2MSB;

    return source->read(source->context, 0, header, sizeof *header) &&
           memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
           header->e_ident[EI_CLASS] == ELFCLASS64 && header->e_ident[EI_DATA] == order;
}

/* ---- From places in the file to addresses --------------------------------------------- */

static void find_addresses(const struct elf_source *source, const Elf64_Ehdr *header,
                           struct elf_place *places, int count)
{
    Elf64_Phdr segment;

    if (header->e_phentsize != sizeof segment)
        return;
    for (uint64_t i = 0; i < header->e_phnum && i < SEGMENTS_MAX; i++) {
        if (header->e_phoff > UINT64_MAX - i * sizeof segment ||
            !source->read(source->context, header->e_phoff + i * sizeof segment,
                          &segment, sizeof segment))
            return;
        for (int k = 0; segment.p_type == PT_LOAD && k < count; k++)
            if (places[k].offset >= segment.p_offset &&
                places[k].offset - segment.p_offset < segment.p_filesz)
                places[k].address = places[k].offset - segment.p_offset +
                                    segment.p_vaddr;
    }
}

/* ---- Tables --------------------------------------------------------------------------- */

static bool read_section(const struct elf_source *source, const Elf64_Ehdr *header,
                         uint64_t number, Elf64_Shdr *section)
{
    return header->e_shoff <= UINT64_MAX - number * sizeof *section &&
           source->read(source->context, header->e_shoff + number * sizeof *section,
                        section, sizeof *section);
}

/* Finds the table of type `wanted`, and its names. */
static bool find_tables(const struct elf_source *source, const Elf64_Ehdr *header,
                        uint32_t wanted, struct tables *tables)
{
    uint64_t count = header->e_shnum;
    Elf64_Shdr section;

    if (header->e_shoff == 0 || header->e_shentsize != sizeof section ||
        !read_section(source, header, 0, &section))
        return false;
    if (count == 0) /* more sections than the header's field can count */
        count = section.sh_size;
    for (uint64_t i = 1; i < count && i < SECTIONS_MAX; i++) {
        if (!read_section(source, header, i, &section))
            return false;
        if (section.sh_type != wanted)
            continue;
        tables->symbols = section;
        return section.sh_entsize == sizeof(Elf64_Sym) && section.sh_link < count &&
               read_section(source, header, section.sh_link, &tables->names) &&
               tables->names.sh_type == SHT_STRTAB;
    }
    return false;
}

/* Calls visit for each symbol until it returns true; true when one did. Reads in pieces, so that
 * a table of any size takes 12 KB. Sizes in the file are not trusted: a read past its end fails
 * and ends this. */
static bool scan_symbols(const struct elf_source *source, const Elf64_Shdr *table,
                         Elf64_Sym *piece,
                         bool (*visit)(void *context, const Elf64_Sym *symbol),
                         void *context)
{
    uint64_t left = table->sh_size / sizeof *piece;
    uint64_t at = table->sh_offset;

    if (left > SYMBOLS_MAX)
        left = SYMBOLS_MAX;
    while (left > 0) {
        const size_t n = left < PIECE_SYMBOLS ? (size_t)left : PIECE_SYMBOLS;

        if (!source->read(source->context, at, piece, n * sizeof *piece))
            return false;
        for (size_t i = 0; i < n; i++)
            if (visit(context, &piece[i]))
                return true;
        at += n * sizeof *piece;
        left -= n;
    }
    return false;
}

/* ---- Functions ------------------------------------------------------------------------ */

struct function_search {
    const struct elf_place *places;
    int count;
    struct best best[PLACES_MAX];
};

static bool is_function(const Elf64_Sym *symbol)
{
    const unsigned type = ELF64_ST_TYPE(symbol->st_info);

    return (type == STT_FUNC || type == STT_GNU_IFUNC) && symbol->st_shndx != SHN_UNDEF;
}

static void compare(const Elf64_Sym *symbol, const struct elf_place *place,
                    struct best *best)
{
    const bool has_size = symbol->st_size > 0;
    uint64_t into;

    if (!place->address || symbol->st_value > place->address)
        return;
    into = place->address - symbol->st_value;
    if (into >= (has_size ? symbol->st_size : SIZELESS_MAX_BYTES))
        return;
    if (best->is_found &&
        (best->has_size > has_size ||
         (best->has_size == has_size && best->start >= symbol->st_value)))
        return;
    *best = (struct best){symbol->st_value, symbol->st_name, true, has_size};
}

static bool look_at_function(void *context, const Elf64_Sym *symbol)
{
    struct function_search *search = context;

    for (int k = 0; is_function(symbol) && k < search->count; k++)
        compare(symbol, &search->places[k], &search->best[k]);
    return false;
}

/* A name may end at the very end of the table: it is read up to there. */
static void read_name(const struct elf_source *source, const Elf64_Shdr *names,
                      const struct best *best, struct elf_place *place)
{
    uint64_t length;

    if (best->name >= names->sh_size || names->sh_offset > UINT64_MAX - best->name)
        return;
    length = names->sh_size - best->name;
    if (length > place->name_size - 1)
        length = place->name_size - 1;
    if (!source->read(source->context, names->sh_offset + best->name, place->name,
                      (size_t)length)) {
        place->name[0] = '\0';
        return;
    }
    place->name[length] = '\0';
    place->start = best->start;
}

static void look_up(const struct elf_source *source, const struct tables *tables,
                    Elf64_Sym *piece, struct elf_place *places, int count)
{
    struct function_search search = {.places = places, .count = count};

    (void)scan_symbols(source, &tables->symbols, piece, look_at_function, &search);
    for (int k = 0; k < count; k++)
        if (search.best[k].is_found && !places[k].name[0])
            read_name(source, &tables->names, &search.best[k], &places[k]);
}

int elf_find_functions(const struct elf_source *source, struct elf_place *places,
                       int count)
{
    /* The full table first: it has static functions. look_up() does not replace a name that was
     * found before. */
    static const uint32_t kinds[] = {SHT_SYMTAB, SHT_DYNSYM};
    struct tables tables;
    Elf64_Ehdr header;
    Elf64_Sym *piece;

    if (count > PLACES_MAX)
        count = PLACES_MAX;
    for (int k = 0; k < count; k++) {
        places[k].address = places[k].start = 0;
        places[k].name[0] = '\0';
    }
    if (!read_header(source, &header))
        return -ENOEXEC;
    find_addresses(source, &header, places, count);
    if (!(piece = ct_zalloc_array(PIECE_SYMBOLS, sizeof *piece)))
        return -ENOMEM;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (find_tables(source, &header, kinds[i], &tables))
            look_up(source, &tables, piece, places, count);
    free(piece);
    return 0;
}

/* ---- Variables ------------------------------------------------------------------------ */

struct variable_search {
    const struct elf_source *source;
    const Elf64_Shdr *names;
    const char *name;
    uint64_t address;
};

static bool look_at_variable(void *context, const Elf64_Sym *symbol)
{
    struct variable_search *search = context;
    const size_t length = strlen(search->name) + 1;
    char name[64];

    if (ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT || symbol->st_value == 0 ||
        symbol->st_shndx == SHN_UNDEF || length > sizeof name ||
        symbol->st_name >= search->names->sh_size ||
        search->names->sh_size - symbol->st_name < length ||
        search->names->sh_offset > UINT64_MAX - symbol->st_name ||
        !search->source->read(search->source->context,
                              search->names->sh_offset + symbol->st_name, name,
                              length) ||
        memcmp(name, search->name, length) != 0)
        return false;
    search->address = symbol->st_value;
    return true;
}

int elf_find_variable(const struct elf_source *source, const char *name,
                      uint64_t *address, uint64_t *base)
{
    /* The dynamic table first: it is small, and stripped libraries have it, too. */
    static const uint32_t kinds[] = {SHT_DYNSYM, SHT_SYMTAB};
    struct elf_place start = {.offset = 0};
    struct variable_search search = {.source = source, .name = name};
    struct tables tables;
    Elf64_Ehdr header;
    Elf64_Sym *piece;

    if (!read_header(source, &header))
        return -ENOEXEC;
    find_addresses(source, &header, &start, 1);
    if (!(piece = ct_zalloc_array(PIECE_SYMBOLS, sizeof *piece)))
        return -ENOMEM;
    search.names = &tables.names;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !search.address; i++)
        if (find_tables(source, &header, kinds[i], &tables))
            (void)scan_symbols(source, &tables.symbols, piece, look_at_variable,
                               &search);
    free(piece);
    *address = search.address;
    *base = start.address;
    return search.address ? 0 : -ENOENT;
}
