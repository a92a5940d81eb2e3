/* SPDX-License-Identifier: Apache-2.0 */
/* Where each batch system puts a task, from recorded environments. */
#include "tests/lib/test.h"

#include <string.h>

#include "launcher/batch/batch_systems.h"
#include "launcher/batch/nested.h"
#include "worker_sdk/base/alloc.h"

enum {
    VARIABLES_MAX = 12
};

struct recorded {
    const char *what;
    const char *env[VARIABLES_MAX];
    const char *path; /* the one file that can be read */
    const char *text;
    const char *host;
    int rc;
    /* if rc is 1: */
    const char *system;
    const char *run_id;
    const char *nodes;
    int node_id;
    int local_id;
    int index;
    int count;
    /* if rc is negative: part of the message */
    const char *words;
};

static const char pbs_file[] = "cn01.hpc\ncn01.hpc\ncn02.hpc\ncn02.hpc\n";

#define LABELS "abcdefghi.abcdefghi.abcdefghi.abcdefghi.abcdefghi."

static const struct recorded rows[] = {
    {.what = "mpirun of Open MPI 4 on one machine",
     .env = {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2",
             "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
             "OMPI_MCA_ess_base_jobid=188416001"},
     .rc = 1,
     .system = "Open MPI",
     .run_id = "mpi-188416001",
     .nodes = "localhost",
     .local_id = 1,
     .index = 1,
     .count = 2},
    {.what = "mpiexec of MPICH on one machine",
     .env = {"PMI_RANK=0", "PMI_SIZE=2", "PMI_FD=6", "MPI_LOCALRANKID=0",
             "MPI_LOCALNRANKS=2"},
     .rc = 1,
     .system = "Hydra",
     .run_id = "mpi-pid-77",
     .nodes = "localhost",
     .count = 2},
    {.what = "mpirun inside of a PBS job",
     .env = {"OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4",
             "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
             "OMPI_MCA_ess_base_jobid=5", "PBS_JOBID=12.head", "PBS_NODEFILE=/nf"},
     .path = "/nf",
     .text = pbs_file,
     .rc = 1,
     .system = "Open MPI",
     .run_id = "mpi-5-pbs-12.head",
     .nodes = "cn01.hpc,cn02.hpc",
     .node_id = 1,
     .local_id = 1,
     .index = 3,
     .count = 4},
    {.what = "mpirun over ssh: nobody knows the hosts",
     .env = {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2",
             "OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_LOCAL_SIZE=1",
             "OMPI_MCA_ess_base_jobid=5"},
     .rc = 1,
     .system = "Open MPI",
     .run_id = "mpi-5",
     .nodes = "?,?",
     .node_id = 1,
     .index = 1,
     .count = 2},
    {.what = "mpirun --map-by node: tasks of a node are not in a row",
     .env = {"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=4",
             "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
             "OMPI_MCA_ess_base_jobid=5"},
     .rc = CTRUN_E_BAD_ENVIRONMENT,
     .words = "--map-by"},
    {.what = "jsrun: the batch host comes first and gets no task",
     .env = {"JSM_NAMESPACE_RANK=2", "JSM_NAMESPACE_SIZE=4",
             "JSM_NAMESPACE_LOCAL_RANK=0", "JSM_NAMESPACE_LOCAL_SIZE=2",
             "LSB_JOBID=900", "LSB_MCPU_HOSTS=batch1 1 h01n01 42 h01n02 42"},
     .rc = 1,
     .system = "jsrun",
     .run_id = "mpi-lsf-900",
     .nodes = "h01n[01-02]",
     .node_id = 1,
     .index = 2,
     .count = 4},
    {.what = "PALS on a Cray with PBS",
     .env = {"PMI_RANK=1", "PMI_SIZE=2", "PMI_LOCAL_RANK=0", "PMI_LOCAL_SIZE=1",
             "PALS_APID=a-b", "PBS_JOBID=7.s", "PBS_NODEFILE=/nf"},
     .path = "/nf",
     .text = pbs_file,
     .rc = 1,
     .system = "PALS",
     .run_id = "mpi-a-b-pbs-7.s",
     .nodes = "cn01.hpc,cn02.hpc",
     .node_id = 1,
     .index = 1,
     .count = 2},
    {.what = "flux run -N1 --tasks-per-node=4",
     .env = {"FLUX_JOB_ID=fABC", "FLUX_TASK_RANK=3", "FLUX_TASK_LOCAL_ID=3",
             "FLUX_JOB_SIZE=4", "FLUX_JOB_NNODES=1", "PMI_RANK=3", "PMI_SIZE=4"},
     .rc = 1,
     .system = "Flux",
     .run_id = "flux-fABC",
     .nodes = "localhost",
     .local_id = 3,
     .index = 3,
     .count = 4},
    {.what = "flux run -N2: the hosts are not told",
     .env = {"FLUX_JOB_ID=fABC", "FLUX_TASK_RANK=1", "FLUX_TASK_LOCAL_ID=0",
             "FLUX_JOB_SIZE=2", "FLUX_JOB_NNODES=2"},
     .rc = 1,
     .system = "Flux",
     .run_id = "flux-fABC",
     .nodes = "?,?",
     .node_id = 1,
     .index = 1,
     .count = 2},
    {.what = "flux run --taskmap=cyclic",
     .env = {"FLUX_JOB_ID=fABC", "FLUX_TASK_RANK=1", "FLUX_TASK_LOCAL_ID=0",
             "FLUX_JOB_SIZE=4", "FLUX_JOB_NNODES=2"},
     .rc = CTRUN_E_BAD_ENVIRONMENT,
     .words = "in a row"},
    {.what = "the initial program of flux batch",
     .env = {"FLUX_URI=local:///x"},
     .rc = 0},
    {.what = "pbsdsh -u of Torque, the second node",
     .env = {"PBS_JOBID=12.head", "PBS_NODEFILE=/nf", "PBS_NODENUM=1", "PBS_VNODENUM=2",
             "PBS_TASKNUM=3"},
     .path = "/nf",
     .text = pbs_file,
     .rc = 1,
     .system = "PBS",
     .run_id = "pbs-12.head",
     .nodes = "cn01.hpc,cn02.hpc",
     .node_id = 1,
     .index = 1,
     .count = 2},
    {.what = "pbsdsh without -u",
     .env = {"PBS_JOBID=12.head", "PBS_NODEFILE=/nf", "PBS_NODENUM=0", "PBS_VNODENUM=1",
             "PBS_TASKNUM=3"},
     .path = "/nf",
     .text = pbs_file,
     .rc = CTRUN_E_USAGE,
     .words = "pbsdsh -u"},
    {.what = "pbsdsh of PBS Pro, mpiprocs=1",
     .env = {"PBS_JOBID=12.head", "PBS_NODEFILE=/nf", "PBS_NODENUM=1",
             "PBS_TASKNUM=20000001"},
     .path = "/nf",
     .text = "cn01\ncn02\ncn03\n",
     .rc = 1,
     .system = "PBS",
     .run_id = "pbs-12.head",
     .nodes = "cn[01-03]",
     .node_id = 1,
     .index = 1,
     .count = 3},
    {.what = "a job script of PBS",
     .env = {"PBS_JOBID=12.head", "PBS_NODEFILE=/nf", "PBS_NODENUM=0", "PBS_TASKNUM=1"},
     .path = "/nf",
     .text = pbs_file,
     .rc = 0},
    {.what = "a node that does not have the node file",
     .env = {"PBS_JOBID=12.head", "PBS_NODEFILE=/nf", "PBS_NODENUM=1", "PBS_TASKNUM=2"},
     .rc = CTRUN_E_BAD_ENVIRONMENT,
     .words = "PBS_NODEFILE=/nf"},
    {.what = "more tasks than lines",
     .env = {"PBS_JOBID=12.head", "PBS_NODEFILE=/nf", "PBS_NODENUM=4", "PBS_TASKNUM=2"},
     .path = "/nf",
     .text = pbs_file,
     .rc = CTRUN_E_BAD_ENVIRONMENT,
     .words = "fewer lines"},
    {.what = "blaunch on every slot",
     .env = {"LSB_JOBID=31", "LSB_JOBINDEX=0", "LSF_PM_TASKID=3",
             "LSB_MCPU_HOSTS=hostA 2 hostB 1"},
     .host = "hostB.dom",
     .rc = 1,
     .system = "LSF",
     .run_id = "lsf-31.0",
     .nodes = "hostA,hostB",
     .node_id = 1,
     .index = 2,
     .count = 3},
    {.what = "blaunch -z 'hostA hostB'",
     .env = {"LSB_JOBID=31", "LSF_PM_TASKID=2", "LSB_MCPU_HOSTS=hostA 2 hostB 2"},
     .host = "hostB",
     .rc = 1,
     .system = "LSF",
     .run_id = "lsf-31",
     .nodes = "hostA,hostB",
     .node_id = 1,
     .index = 1,
     .count = 2},
    {.what = "LSF without the counted list",
     .env = {"LSB_JOBID=31", "LSF_PM_TASKID=1", "LSB_HOSTS=hostA hostB"},
     .host = "hostA",
     .rc = 1,
     .system = "LSF",
     .run_id = "lsf-31",
     .nodes = "hostA,hostB",
     .count = 2},
    {.what = "a broken counted list",
     .env = {"LSB_JOBID=31", "LSF_PM_TASKID=1", "LSB_MCPU_HOSTS=hostA x"},
     .host = "hostA",
     .rc = CTRUN_E_BAD_ENVIRONMENT,
     .words = "LSB_MCPU_HOSTS"},
    {.what = "a task that is counted from 0",
     .env = {"LSB_JOBID=31", "LSF_PM_TASKID=0", "LSB_MCPU_HOSTS=hostA 2"},
     .host = "hostA",
     .rc = CTRUN_E_BAD_ENVIRONMENT,
     .words = "LSF_PM_TASKID is 0"},
    {.what = "a job script of LSF",
     .env = {"LSB_JOBID=31", "LSB_MCPU_HOSTS=hostA 2 hostB 2"},
     .rc = 0},
    {.what = "an indexed job of Kubernetes with a service",
     .env = {"JOB_COMPLETION_INDEX=2", "KUBERNETES_SERVICE_HOST=10.0.0.1",
             "HOSTNAME=train-2"},
     .path = "/etc/hosts",
     .text =
         "127.0.0.1\tlocalhost\n10.1.0.9\ttrain-2.svc.ns.svc.cluster.local\ttrain-2\n",
     .rc = 1,
     .system = "Kubernetes",
     .run_id = "k8s-train",
     .nodes = "train-0.svc.ns.svc.cluster.local",
     .node_id = 2,
     .count = 1},
    {.what = "an indexed job of Kubernetes without one",
     .env = {"JOB_COMPLETION_INDEX=0", "KUBERNETES_SERVICE_HOST=10.0.0.1",
             "HOSTNAME=my-job-0"},
     .path = "/etc/hosts",
     .text = "127.0.0.1\tlocalhost\n10.1.0.9\tmy-job-0\n",
     .rc = 1,
     .system = "Kubernetes",
     .run_id = "k8s-my-job",
     .nodes = "my-job-0",
     .count = 1},
    {.what = "a pod with a name of its own",
     .env = {"JOB_COMPLETION_INDEX=2", "KUBERNETES_SERVICE_HOST=10.0.0.1",
             "HOSTNAME=other"},
     .rc = CTRUN_E_BAD_ENVIRONMENT,
     .words = "JOB_COMPLETION_INDEX is 2"},
    {.what = "a pod with a name that is too long",
     .env = {"JOB_COMPLETION_INDEX=2", "KUBERNETES_SERVICE_HOST=10.0.0.1",
             "HOSTNAME=train-2"},
     .path = "/etc/hosts",
     .text = "10.1.0.9\ttrain-2." LABELS LABELS LABELS LABELS LABELS "svc\ttrain-2\n",
     .rc = CTRUN_E_BAD_ENVIRONMENT,
     .words = "is longer than a host name can be"},
    {.what = "nothing at all", .rc = 0},
};

static const char *get(const void *context, const char *name)
{
    const struct recorded *row = context;
    size_t length = strlen(name);

    for (int i = 0; i < VARIABLES_MAX && row->env[i]; i++)
        if (strncmp(row->env[i], name, length) == 0 && row->env[i][length] == '=')
            return row->env[i] + length + 1;
    return NULL;
}

static char *read_file(const void *context, const char *path)
{
    const struct recorded *row = context;

    return row->path && strcmp(row->path, path) == 0 ? ct_strdup(row->text) : NULL;
}

TEST(each_environment_tells_its_place)
{
    char nodes[256];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct recorded *row = &rows[i];
        const struct batch_source source = {get, read_file, row, row->host, 77};
        struct ctrun_error err = {0};
        struct batch_place place;
        int rc = batch_find(&place, &source, &err);

        if (rc != row->rc)
            fail_msg("%s: %d, not %d: %s", row->what, rc, row->rc, err.text);
        if (rc < 0 && !strstr(err.text, row->words))
            fail_msg("%s: %s", row->what, err.text);
        if (rc <= 0)
            continue;
        print_message("%s\n", row->what);
        assert_string_equal(place.system, row->system);
        assert_string_equal(place.run_id, row->run_id);
        assert_string_equal(hostlist_format(&place.nodes, nodes, sizeof nodes),
                            row->nodes);
        assert_int_equal(place.node_id, row->node_id);
        assert_int_equal(place.local_id, row->local_id);
        if (place.has_size)
            assert_int_equal(batch_task_index(&place), row->index);
        assert_int_equal(batch_task_count(&place), row->count);
        batch_place_deinit(&place);
    }
}

TEST(no_allocation_that_fails_is_overlooked)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct batch_source source = {get, read_file, &rows[i], rows[i].host, 77};
        struct batch_place place;
        int rc = 0;

        for (size_t n = 1; rc < rows[i].rc && n < 100; n++) {
            ct_alloc_fail_at(n);
            rc = batch_find(&place, &source, NULL);
            if (rc == 1)
                batch_place_deinit(&place);
        }
        ct_alloc_fail_at(0);
        if (rows[i].rc == 1)
            assert_int_equal(rc, 1);
    }
}

TEST(hosts_are_the_same_with_and_without_a_domain)
{
    assert_true(batch_is_same_host("a", "a.b.c"));
    assert_true(batch_is_same_host("a.b.c", "a.b.c"));
    assert_false(batch_is_same_host("a.b", "a.c"));
    assert_false(batch_is_same_host("a", "ab"));
    assert_false(batch_is_same_host("node1", "node10"));
}

TEST(only_a_worker_of_the_same_task_stays_away_from_its_step)
{
    char *const worker[] = {(char[]){"RANK=3"}, (char[]){"LOCAL_RANK=1"},
                            (char[]){"TORCHELASTIC_RUN_ID=exp"},
                            (char[]){"CTRUN_BATCH_TASK=slurm-4.0"}, NULL};
    char *const torchrun[] = {(char[]){"RANK=3"}, (char[]){"LOCAL_RANK=1"},
                              (char[]){"TORCHELASTIC_RUN_ID=exp"}, NULL};
    char *const kubeflow[] = {(char[]){"RANK=3"}, (char[]){"WORLD_SIZE=8"}, NULL};
    char *const plain[] = {(char[]){"RANK=3"}, (char[]){"LOCAL_RANK=1"},
                           (char[]){"TORCHELASTIC_RUN_ID=exp"},
                           (char[]){"CTRUN_GENERATION=1"}, NULL};
    char text[NESTED_TEXT_MAX];

    assert_true(nested_is_in_task(worker, "slurm-4.0"));
    assert_false(nested_is_in_task(worker, "slurm-4.1")); /* srun inside a worker */
    assert_true(nested_is_in_task(torchrun, "slurm-4.0"));
    assert_false(nested_is_in_task(kubeflow, "slurm-4.0"));
    assert_false(nested_is_in_task(plain, "mpi-5")); /* mpirun inside a worker */
    assert_string_equal(nested_format(text, sizeof text, kubeflow), "");
    nested_format(text, sizeof text, worker);
    assert_non_null(
        strstr(text, "inherited RANK/LOCAL_RANK/TORCHELASTIC_RUN_ID ignored"));
    assert_non_null(strstr(text, "rank 3 of run exp"));
}
