# SPDX-License-Identifier: Apache-2.0
"""The shell scripts of cli/faults: together they use every unit of ctrun and ctrunctl.

Each has a folder of its own, $PORT, $TESTS (the programs of the tests), $SLOW, $LIMIT (how many
seconds one process waits for another; few where a call fails), $STEPS (of 07_elastic, more than it
makes before its rank 1 is killed), the functions of PRELUDE and the files `options`, `secret` and
`staged`. A script ends whichever call fails: it waits for a file only while the run lives that
makes it."""

PRELUDE = r"""
until_file() { while [ ! -e "$1" ] && kill -0 "$2" 2>/dev/null; do sleep 0.05; done; }
# with_run CTL-COMMAND...: each is run beside a job whose worker is up, and then it may end.
with_run() {
    ctrun --rdzv-id=j --nproc-per-node=2 -r3 -t3 --log-dir=D --shutdown-timeout=1 --max-restarts=1 sh -c '
        echo "hello $RANK"; trap "exit 0" TERM USR1; touch "up.$TORCHELASTIC_RESTART_COUNT.$RANK"
        while [ ! -e done ]; do sleep 0.05; done' &
    run=$!
    until_file up.0.0 $run
    until_file up.0.1 $run
    code=0
    for command; do sh -c "$command" || code=$?; done
    touch done
    wait $run
    return $code
}
two_nodes() {
    ctrun --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=localhost:$PORT --rdzv-id=j \
        --rdzv-conf=join_timeout=$LIMIT,last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=$LIMIT \
        --shutdown-timeout=1 "$@" &
    first=$!
    ctrun --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=localhost:$PORT --rdzv-id=j \
        --rdzv-conf=join_timeout=$LIMIT,last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=$LIMIT,is_host=0 \
        --shutdown-timeout=1 "$@"
    code=$?
    wait $first || code=$?
    return $code
}
# step TASK...: all at once; when one fails, the others are killed, as by srun --kill-on-bad-exit.
step() {
    count=0
    for task; do
        count=$((count + 1))
        { sh -c "echo \$\$ >pid.$count; exec $task"; echo $? >code.$count; } &
    done
    while [ "$(cat code.* 2>/dev/null | wc -l)" -lt $count ]; do
        cat code.* 2>/dev/null | grep -qvx 0 && kill -9 $(cat pid.*) 2>/dev/null
        sleep 0.05
    done
    cat code.* | grep -vx -e 0 -e 137 | head -n 1 | grep . >code || echo 0 >code
    return $(cat code)
}
"""

SLURM = """SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[1-2] SLURM_JOB_NODELIST=n[1-2]
SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_NODEID=0
SLURM_PROCID=0 SLURM_LOCALID=0"""

TWO = "ctrun --nproc-per-node=2 --no-python"

# name: (script, its exit code when no call fails; None: any)
BODIES = {
    "run": (f"{TWO} true", 0),
    "orphans": ("ctrun --shutdown-timeout=1 --no-python sh -c 'setsid sleep 60 & exit 3'", 3),
    "logs": (f"{TWO} --log-dir=D -r3 -t3 --log-max-size=1M --log-rate-limit=1M --collapse "
             "--duplicate-stdout-filters=o sh -c 'echo out; echo err >&2'", 0),
    "failure": (f"{TWO} --max-restarts=1 --log-dir=D sh -c "
                "'echo boom >&2; [ $RANK = 1 ] || exit 3; exec sleep 60'", 3),
    "timeout": (f"{TWO} --log-dir=D sh -c '[ $RANK = 1 ] || "
                "{ echo \"Timed out waiting 2000ms for recv operation to complete\" >&2; exit 3; }; exec sleep 60'", 3),
    "jax": (f"{TWO} --standalone --jax true", 0),
    "restart": ("printf 'words = boom!\\nlikely = x\\n' >rules; "
                f"{TWO} --max-restarts=3 --min-uptime=0 --restart-delay=0.01 --failure-rules=rules --log-dir=D "
                "sh -c 'echo boom! >&2; exit 3'", 3),
    "explain": ("printf 'words = boom!\\nlikely = x\\n' >rules; echo boom! >log; ctrunctl explain --failure-rules rules log", 0),
    "roles": ("ctrun --standalone --role 'a=1:true' --role 'b=1:true' --role-restarts b=1", 0),
    "role-restarts": ("ctrun --standalone --role 'a=1:sh -c \"sleep 0.1\"' "
                      "--role 'b=1:sh -c \"[ -e x ] || { touch x; exit 3; }\"' "
                      "--role-restarts b=1", 0),
    "survive": ("ctrun --nproc-per-node=2 --survive=sdk --survive-timeout=5 --survive-replace=1 --shutdown-timeout=1 "
                "--no-python sh -c '[ \"$CTRUN_MAY_GROW\" = new ] && exec true; "
                "E=$TESTS/../../examples/07_elastic; [ $RANK = 1 ] || exec $E $STEPS >out; $E $STEPS & "
                "while kill -0 $! 2>/dev/null && ! grep -qs \"step 1000,\" out; do sleep 0.05; done; "
                "kill -9 $$$$'", 0),
    "calls": ("ctrun --nproc-per-node=2 --log-dir=D --shutdown-timeout=1 --no-python sh -c "
              "'E=$TESTS/../../examples/07_elastic; [ $RANK = 1 ] || exec $E $STEPS >out; $E $STEPS & "
              "while kill -0 $! 2>/dev/null && ! grep -qs \"step 1000,\" out; do sleep 0.05; done; "
              "kill -9 $$$$'", 137),
    "config": ("ctrun --config options --print-config true", 0),
    "dry-run": (f"env {' '.join(SLURM.split())} ctrun --dry-run --json --no-python true".replace(
        "[", "'['").replace("(", "'('").replace(")", "')'"), 0),
    "dry-run-tasks": (f"env {' '.join(SLURM.split())} ctrun --dry-run --no-python true".replace(
        "TASKS=2", "TASKS=4").replace("1(x2)", "'2(x2)'").replace("[", "'['"), 0),
    "dry-run-text": ("ctrun --dry-run --nic-affinity --no-python true", 0),
    "hold": ("env PYTHONPATH=$HERE/../../python CTRUN_LIBRARY=$TESTS/../../lib/libctrun.so ctrun --no-python "
             "$PYTHON -c 'import ctrun; ctrun.metric(\"a\", 1); f = ctrun.hold(\"c\"); f.write(b\"x\"); "
             "f.commit(); ctrun.hold_wait(); ctrun.held(\"c\").read()'", 0),
    "crash": ("ctrun --no-python $TESTS/crasher null", None),
    "crash-static": ("ctrun --no-python $TESTS/crasher_static null", None),
    "interpreter": ("printf '#!/nowhere/sh\\r\\n' >p; chmod +x p; ctrun --no-python ./p", None),
    "missing": ("ctrun nosuch.py", None),
    "error-file": (f"{TWO} sh -c 'echo \"{{\\\"message\\\": \\\"boom\\\"}}\" "
                   ">$TORCHELASTIC_ERROR_FILE; exit 1'", 1),
    "survivors": ("ctrun --nproc-per-node=3 --survivor-grace=5 --shutdown-timeout=1 --no-python $PYTHON -c "
                  "'import os, socket, time\nrank = os.environ[\"RANK\"]\n"
                  "if rank == \"0\":\n s = socket.create_server((\"127.0.0.1\", 0))\n"
                  " os.symlink(str(s.getsockname()[1]), \"port\")\n c = s.accept()[0]\n open(\"up\", \"w\")\n c.recv(1)\n"
                  "while not os.path.islink(\"port\"): time.sleep(0.02)\n"
                  "if rank == \"1\":\n c = socket.create_connection((\"127.0.0.1\", int(os.readlink(\"port\"))))\n"
                  " c.recv(1)\n"
                  "while rank == \"2\" and not os.path.exists(\"up\"): time.sleep(0.02)\n"
                  "os._exit(3)'", 3),
    "warm": ("echo 'import sys; sys.exit(3)' >s.py; PYTHON_EXEC=$PYTHON ctrun --nproc-per-node=2 --max-restarts=1 "
             "--warm=json s.py", 3),
    "warm-refused": (": >s.py; PYTHON_EXEC=$PYTHON ctrun --warm=nosuch s.py", 0),
    "torch-events": ("ctrun --event-log-handler=console --no-python true", 0),
    "hang": (f"{TWO} --hang-timeout=1 --log-dir=D --shutdown-timeout=1 $TESTS/victim @0 "
             "step 2 hang @all step 1 hang", 1),
    "hang-outside": ("$PYTHON -c 'import sys; sys.path.insert(0, sys.argv[1]); import fake_torch; "
                     "fake_torch.install(\".\")' $HERE; echo 'from torch.distributed.distributed_c10d import call\n"
                     "import os\nif os.environ[\"RANK\"] == \"0\": call(1)\nos.read(os.pipe()[0], 1)' >s.py; "
                     "PYTHONPATH=$PWD/site-packages PYTHON_EXEC=$PYTHON ctrun --nproc-per-node=2 --hang-timeout=1 "
                     "--log-dir=D --shutdown-timeout=1 s.py", 1),
    "stragglers": ("ctrun --nproc-per-node=2 --stragglers --no-python $TESTS/stopper up 1 2 & run=$!; "
                   "until_file up.0 $run; c=0; for i in $(seq $((7 * LIMIT))); do ctrunctl status --json | grep -q late_seconds "
                   "&& break; kill -0 $run || break; sleep 0.2; done; kill -TERM $run; wait $run || c=$?; exit $c", None),
    "stuck": ("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT=0.2 ctrun --shutdown-timeout=0 "
              "--no-python true", 0),
    "timer": ("TORCHELASTIC_ENABLE_FILE_TIMER=1 ctrun --no-python sh -c 'printf \"{\\\"version\\\": "
              "1, \\\"pid\\\": %d, \\\"scope_id\\\": \\\"s\\\", \\\"expiration_time\\\": %d, "
              "\\\"signal\\\": 10}\\n\" $$$$ $$(date +%s) >$TORCHELASTIC_TIMER_FILE; sleep $((LIMIT * 3)); exit 9'", 138),
    "allocation": ("CTRUN_END_TIME=$(($(date +%s) + 3600)) ctrun --stop-before-end=3597 "
                   "--requeue-exit=75 --shutdown-timeout=1 --no-python sleep 60", None),
    "signal": ("ctrun --shutdown-timeout=1 --no-python sh -c 'trap \"exit 5\" TERM; touch up; "
               "while :; do sleep 0.05; done' & until_file up $!; kill -TERM $!; wait $!", None),
    "two-nodes": ("two_nodes --no-python sh -c 'exit 0'", 0),
    "two-nodes-fail": ("two_nodes --no-python sh -c '[ $RANK = 1 ] && exit 3; sleep 30'", None),
    "gloo-scale": ("mkdir -p v/bin v/lib/python3/site-packages/torch; ln -s $PYTHON v/bin/python3; : >train.py; "
                   "echo \"__version__ = '2.15.0'\" >v/lib/python3/site-packages/torch/version.py; "
                   "PYTHON_EXEC=v/bin/python3 two_nodes train.py", 0),
    "token": ("export CTRUN_TOKEN=0123456789abcdef0123456789; "
              "two_nodes --encrypt --no-python true", 0),
    "token-file": ("two_nodes --rdzv-token-file=secret --no-python true", 0),
    "merge": ("export SLURM_JOB_ID=7$PORT SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n1 "
              "SLURM_JOB_NODELIST=n1 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=2 "
              "SLURM_STEP_TASKS_PER_NODE=2 SLURM_NODEID=0 SLURM_RESTART_COUNT=1; "
              "step 'env SLURM_PROCID=0 SLURM_LOCALID=0 ctrun --nproc-per-node=2 --log-dir=D --no-python true' "
              "'env SLURM_PROCID=1 SLURM_LOCALID=1 ctrun --nproc-per-node=2 --log-dir=D --no-python true'", 0),
    "hosts": ("ctrun --hosts=a,b --nproc-per-node=1 --shutdown-timeout=1 -r3 -t3 --log-dir=D --no-python "
              "sh -c 'echo hello'", 0),
    "hosts-tree": ("ctrun --hosts=n[1-4] --hosts-timeout=$((LIMIT + 2)) --no-python sh -c 'echo hello >&2'", 0),
    "hosts-fail": ("ctrun --hosts=a,b --hosts-timeout=$((LIMIT + 2)) --shutdown-timeout=1 --max-restarts=1 "
                   "--no-python sh -c '[ $RANK = 1 ] && exit 3; sleep 30'", 3),
    "hosts-file": ("printf 'a\\nb\\n' >h; ctrun --hosts-file=h --dry-run --no-python true", 0),
    "stage": ("ctrun --hosts=a,b --hosts-timeout=$((LIMIT + 2)) --stage=staged --stage-dir=$PWD/disk "
              "--stage-remove --no-python cat staged/1", 0),
    "pty": ("script -qec 'ctrun --nproc-per-node=2 --no-python --pty=auto tty' /dev/null", 0),
    "help": ("ctrun --help", 0),
    "completion": ("ctrunctl --print-completion bash", 0),
    "status": ("ctrunctl status --json", None),
    "ctl-status": ("with_run 'ctrunctl status' 'ctrunctl status --json' 'ctrunctl why' "
                   "'ctrunctl signal USR1'", None),
    "ctl-stacks": ("two_nodes --budget=100 --no-python sh -c 'ctrunctl stacks --run $$PPID; exit 0'", 0),
    "ctl-logs": ("with_run 'ctrunctl logs'", 0),
    "ctl-kv": ("with_run 'ctrunctl kv set k v; ctrunctl kv get k'", None),
    "ctl-kv-all": ("with_run 'ctrunctl kv add n 1; ctrunctl kv list; ctrunctl kv --timeout 1 wait n; "
                   "ctrunctl kv delete n'", None),
    "ctl-stop": ("with_run 'ctrunctl stop'", None),
    "ctl-restart": ("with_run 'ctrunctl restart'", None),
    "gpu-wait": ("export LD_LIBRARY_PATH=$TESTS/fake_nvml FAKE_NVML_HELD=held FAKE_NVML_ASKED=asked; "
                 "ctrun --gpu-wait=1 --max-restarts=2 --no-python sh -c '"
                 "[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; n=0; "
                 "while [ ! -e asked ] && [ $n -lt 100 ]; do sleep 0.05; n=$((n + 1)); done; "
                 'echo "1 20480" >held; exit $((3 + TORCHELASTIC_RESTART_COUNT))\'', None),
    "ctl-chaos": ("export CTRUN_ALLOW_CHAOS=1; printf 'at 0s stop rank=1 for=20ms\\nat 10ms cut node=0 for=50ms\\n"
                  "at 20ms full node=0 for=10ms\\n' >plan; with_run 'ctrunctl chaos plan' 'ctrunctl chaos --dry-run plan'", 0),
    "ctl-reload": ("with_run \"ctrunctl reload --now sh -c 'exit 0'\" 'ctrunctl status'", None),
    "ctl-resize": ("with_run 'ctrunctl resize 1'", None),
    "ctl-drain": ("with_run 'ctrunctl drain'", None),
    "ctl-follow": ("with_run 'ctrunctl logs -f & touch done; wait $!'", None),
    "install": ("ctrunctl install --shared bin", 0),
    "why": ("ctrun --log-dir=D --no-python sh -c 'exit 3'; ctrunctl why D", 0),
    "doctor": ("ctrunctl doctor --json", None),
    "doctor-endpoint": ("ctrunctl doctor localhost:$PORT", 1),
    "doctor-net": ("two_nodes --no-python env $FAULTED ctrunctl doctor --net", None),
    "killed": ("ctrun --no-python sh -c 'kill -9 $$$$'", 137),
    "wrapper": ("ctrun --shutdown-timeout=5 --no-python sh -c '(trap \"sleep 2.5; exit 0\" TERM; "
                "touch up; while :; do sleep 0.05; done) & wait' & "
                "until_file up $!; kill -TERM $!; wait $!", None),
    "busy": ("ctrun --rdzv-backend=c10d --rdzv-endpoint=localhost:$PORT --rdzv-conf=is_host=1 "
             "--no-python sh -c 'touch up; while [ ! -e done ]; do sleep 0.05; done' & "
             "until_file up $!; ctrun --rdzv-backend=c10d --rdzv-endpoint=localhost:$PORT "
             "--rdzv-id=other --rdzv-conf=is_host=1 --no-python true; touch done; wait $!", None),
    "pbs": ("printf 'n1\\nn1\\n' >n; PBS_JOBID=7 PBS_NODEFILE=n PBS_TASKNUM=1 PBS_NODENUM=0 ctrun --dry-run "
            "--no-python true", 0),
    "lsf": ("LSB_JOBID=31 LSF_PM_TASKID=1 LSB_HOSTS='n1 n2' ctrun --dry-run --no-python true", 0),
    "late-name": ("ctrun --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=nohost.invalid:1 "
                  "--rdzv-conf=join_timeout=3 --no-python true", None),
    "pmi": ("$PYTHON $HERE/pmi_job.py 1 ctrun --rdzv-conf=join_timeout=$LIMIT --no-python true", 0),
    "pmi-merge": ("$PYTHON $HERE/pmi_job.py 2 ctrun --nproc-per-node=2 "
                  "--rdzv-conf=join_timeout=$LIMIT --no-python true", 0),
    "pmi-absent": ("$PYTHON $HERE/pmi_job.py 1 sh -c '[ $SLURM_NODEID = 0 ] || exec sleep 60; exec ctrun "
                   "--rdzv-conf=join_timeout=1 --no-python true'", 75),
    "oom": ("echo $$ >$GROUP/cgroup.procs; ctrun --no-python $TESTS/victim eat 200000000", 137),
    "two-hosts": ("unshare --net sh $HERE/two_hosts.sh", 0),
    "etcd": ("for n in 1 2; do ctrun --nnodes=2 --rdzv-backend=etcd --rdzv-endpoint=$ETCD "
             "--rdzv-id=j$PORT --rdzv-conf=join_timeout=$((LIMIT + 5)),read_timeout=$((LIMIT + 5)),lease_ttl=$LIMIT --no-python "
             "true & done; c=0; wait $! || c=$?; wait || c=$?; exit $c", 0),
    "etcd-password": ("ctrun --nnodes=2 --rdzv-backend=etcd --rdzv-endpoint=$ETCD --rdzv-id=j "
                      "--rdzv-conf=user=ctrun,password_file=secret --dry-run --no-python true", 0),
    "ha": ("for n in 1 2 3; do ctrun --ha --nnodes=3 --rdzv-backend=c10d "
           "--rdzv-endpoint=localhost:$PORT --rdzv-id=j --rdzv-conf=join_timeout=$((LIMIT + 5)) --no-python sh -c '"
           "for i in $(seq $((7 * LIMIT * SLOW))); do sleep 0.5; grep -q survives.:1 $$CTRUN_EVENTS && sleep 2 && exit 0; "
           "done' & done; c=0; wait $! || c=$?; wait || c=$?; exit $c", 0),
}

# These take seconds: here calls fail only in units that no other script uses.
LONG = {"allocation", "hang", "hang-outside", "late-name", "wrapper", "ha", "oom", "etcd"}

# Units that only these scripts use; not every machine can run them.
ONLY = {
    "agent/postmortem/kmsg.c": {"oom"},
    "agent/postmortem/failure_evidence.c": {"oom"},
    "agent/agent_reachability.c": {"two-hosts"},
    "launcher/net/route.c": {"two-hosts"},
}
