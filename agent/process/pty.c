/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/pty.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

/* Neither "\r\n" for "\n" nor an echo: what comes out is what was written. */
static int make_plain(int fd)
{
    struct termios mode;

    if (tcgetattr(fd, &mode) < 0)
        return -errno;
    mode.c_oflag &= ~(tcflag_t)OPOST;
    mode.c_lflag &= ~(tcflag_t)ECHO;
    return tcsetattr(fd, TCSANOW, &mode) < 0 ? -errno : 0;
}

/* By the descriptor, not by its name: a container may not have mounted /dev/pts. */
static int open_child_end(int fd)
{
    int child_fd;

    if (unlockpt(fd) < 0)
        return -errno;
    child_fd = ioctl(fd, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    return child_fd < 0 ? -errno : child_fd;
}

int pty_open(int *child_fd, int like_fd)
{
    const int fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    int rc;

    if (fd < 0)
        return -errno;
    rc = open_child_end(fd);
    if (rc >= 0) {
        *child_fd = rc;
        if ((rc = make_plain(*child_fd)) == 0) {
            pty_resize(fd, like_fd);
            return fd;
        }
        close(*child_fd);
    }
    close(fd);
    return rc;
}

void pty_resize(int fd, int like_fd)
{
    struct winsize size;

    if (ioctl(like_fd, TIOCGWINSZ, &size) == 0)
        (void)ioctl(fd, TIOCSWINSZ, &size);
}
