/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl and ctrund of CTRUN_STATIC: execute the ctrun in the same folder under the name
 * STUB_NAME (entry_all.c). Stubs and not links, because a wheel and an image keep no links.
 * STUB_IS_BARE: without libc, which would be most of the file. */
#include <fcntl.h>
#include <linux/limits.h>
#include <stddef.h>
#include <sys/syscall.h>

enum {
    CANNOT_START = 126
};

#ifdef STUB_IS_BARE
static long call(long number, long a, const void *b, const void *c, long d)
{
#if defined __x86_64__
    register long fourth __asm__("r10") = d;
    long result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
    return result;
#elif defined __aarch64__
    register long which __asm__("x8") = number;
    register long first __asm__("x0") = a;
    register const void *second __asm__("x1") = b;
    register const void *third __asm__("x2") = c;
    register long fourth __asm__("x3") = d;

    __asm__ volatile("svc 0"
                     : "+r"(first)
                     : "r"(which), "r"(second), "r"(third), "r"(fourth)
                     : "memory");
    return first;
#else
#error "STUB_IS_BARE is for x86-64 and 64-bit ARM"
#endif
}
#else
#include <unistd.h>
#define call syscall
#endif

static size_t put(char *to, const char *text)
{
    size_t n = 0;

    while ((to[n] = text[n]) != '\0')
        n++;
    return n;
}

static void print(const char *text)
{
    size_t n = 0;

    while (text[n])
        n++;
    (void)call(SYS_write, 2, text, (const void *)n, 0);
}

static int start_beside_us(char **argv, char *const *env)
{
    static char ctrun[PATH_MAX], name[PATH_MAX];
    const size_t room = sizeof ctrun - sizeof STUB_NAME - sizeof "ctrun";
    const long length = call(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", ctrun,
                             (long)room);
    size_t folder = length > 0 ? (size_t)length : 0;

    if (folder == 0) {
        print(STUB_NAME ": /proc/self/exe cannot be read: mount /proc\n");
        return CANNOT_START;
    }
    while (folder > 0 && ctrun[folder - 1] != '/')
        folder--;
    ctrun[folder] = '\0';
    (void)put(name + put(name, ctrun), STUB_NAME);
    (void)put(ctrun + folder, "ctrun");
    if (argv[0])
        argv[0] = name; /* even if a link with another name started us */
    (void)call(SYS_execve, (long)ctrun, argv, env, 0);
    print(STUB_NAME ": cannot start ");
    print(ctrun);
    print(", which must lie beside it: copy both, and ctrun of the same build\n");
    return CANNOT_START;
}

#ifdef STUB_IS_BARE
/* The kernel puts on the stack: argc, argv, NULL, environment, NULL. */
__attribute__((noreturn, used)) void stub_main(char **stack);

void stub_main(char **stack)
{
    char **argv = stack + 1;

    (void)call(SYS_exit_group, start_beside_us(argv, argv + (size_t)stack[0] + 1), NULL,
               NULL, 0);
    __builtin_trap();
}

#if defined __x86_64__
__asm__(".globl _start\n_start:\n xor %ebp, %ebp\n mov %rsp, %rdi\n and $-16, %rsp\n"
        " call stub_main\n");
#else
__asm__(".globl _start\n_start:\n mov x29, #0\n mov x30, #0\n mov x0, sp\n"
        " bl stub_main\n");
#endif
#else
int main(int argc, char **argv)
{
    (void)argc;
    return start_beside_us(argv, environ);
}
#endif
