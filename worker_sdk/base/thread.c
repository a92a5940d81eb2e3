/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/thread.h"

#include <signal.h>

int ct_thread_start(pthread_t *thread, void *(*fn)(void *context), void *context)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* the new one inherits it */
    rc = pthread_create(thread, NULL, fn, context);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}
