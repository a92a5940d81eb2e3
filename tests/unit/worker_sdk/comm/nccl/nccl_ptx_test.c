/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA's assembler accepts our kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "worker_sdk/comm/nccl/nccl_kernels.h"

TEST(the_assembler_takes_the_kernels)
{
    char path[] = "/tmp/ctrun-ptx-XXXXXX";
    int status, fd = mkstemp(path);
    FILE *file;
    pid_t pid;

    assert_true(fd >= 0);
    file = fdopen(fd, "w");
    assert_non_null(file);
    assert_true(fputs(ct_nccl_kernels_text(), file) >= 0);
    assert_int_equal(fclose(file), 0);
    if ((pid = fork()) == 0) {
        execl(PTXAS, PTXAS, path, "-o", "/dev/null", (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    unlink(path);
}
