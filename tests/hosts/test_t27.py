# SPDX-License-Identifier: Apache-2.0
"""T27: a step of Slurm on uneven nodes, from its environment alone; no Slurm is running here."""
import ctrun

WORLD = 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK $(hostname)"'


def step(tasks, node, local):
    return {"SLURM_JOB_ID": "27", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "node[1-3]",
            "SLURM_JOB_NODELIST": "node[1-4]", "SLURM_NTASKS_PER_NODE": "8",
            "SLURM_STEP_TASKS_PER_NODE": tasks, "SLURM_NODEID": str(node - 1),
            "SLURM_LOCALID": str(local)}


def start(hosts, node, env, *words):
    return hosts.start(f"node{node}", *words, env=env)


def finish(runs):
    for run in runs:
        assert run.wait(90) == 0, run
    return (sorted("".join(run.out for run in runs).split("\n")[:-1]),
            "".join(run.err for run in runs))


def test_derived_ports_that_others_have_are_passed_over_by_all_nodes(box, lab):
    hosts = lab(2)
    env = {**step("1(x2)", 1, 0), "SLURM_STEP_NODELIST": "node[1-2]"}
    ports = [20000 + (27 * 7 + i * 2251) % 9000 for i in range(4)]  # job 27, step 0
    silent = hosts.start("node1", "python3", "-c", "import socket, time\n"
                         f"s = socket.create_server(('', {ports[0]}))\n"
                         "print('here', flush=True)\ntime.sleep(1000)")
    ctrun.wait_until(lambda: silent.out, "the first port is taken")
    other = hosts.start("node1", ctrun.program("ctrun"), "--nnodes=2", "--rdzv-id=other",
                        f"--rdzv-endpoint=node1:{ports[1]}", "true")
    box.wait_event("agent_state", to="joining")
    out, err = finish([start(hosts, node, {**env, "SLURM_NODEID": str(node - 1), "LOGLEVEL": "INFO"},
                             ctrun.program("ctrun"), "--no-python", "sh", "-c", WORLD)
                       for node in (2, 1)])
    assert f"serving the rendezvous run=slurm-27.0 port={ports[2]}" in err, err
    assert out == ["0/2 0/1 0 node1", "1/2 0/1 1 node2"], err
    for run in (other, silent):
        run.signal(15)
        run.wait()


def test_t27_eight_eight_and_seven_tasks_are_23_ranks_and_never_8_times_8(box, lab):
    hosts = lab(3)
    sizes = {1: 8, 2: 8, 3: 7}
    places = [(node, local) for node, size in sizes.items() for local in range(size)]
    out, err = finish([start(hosts, node, step("8(x2),7", node, local), ctrun.program("ctrun"),
                             "--no-python", "sh", "-c", WORLD) for node, local in places])
    assert out == sorted(f"{rank}/23 {local}/{sizes[node]} {node - 1} node{node}"
                         for rank, (node, local) in enumerate(places)), err
    assert err.count("3 nodes, 8+8+7 = 23 workers") == 1, err
    # The same tasks with --nproc-per-node: one agent a node.
    out, err = finish([start(hosts, node, step("2(x2),1", node, local), ctrun.program("ctrun"),
                             "--nproc-per-node=2", "--no-python", "sh", "-c", WORLD)
                       for node, local in places if local < {1: 2, 2: 2, 3: 1}[node]])
    assert out == [f"{rank}/6 {rank % 2}/2 {rank // 2} node{rank // 2 + 1}"
                   for rank in range(6)], err
    assert err.count("3 nodes, 2+2+2 = 6 workers") == 1, err


def test_t27_gpus_that_differ_masks_that_are_small_and_programs_that_differ_are_told(box, lab):
    hosts = lab(3)
    program = 'echo "#!/bin/sh" > /tmp/train; echo "{0}" >> /tmp/train; chmod +x /tmp/train; '
    runs = []
    for node, gpus in ((1, 8), (2, 8), (3, 7)):
        env = {**step("1(x3)", node, 0), "SLURM_GPUS_ON_NODE": str(gpus)}
        line = program.format("exit 0" if node != 2 else "true; exit 0")
        runs.append(start(hosts, node, env, "sh", "-c", f'{line} exec taskset -c 0 "$0" "$@"',
                          ctrun.program("ctrun"), "--nproc-per-node=gpu", "/tmp/train"))
    _, err = finish(runs)
    assert err.count("3 nodes, 8+8+7 = 23 workers") == 1, err
    assert err.count("warning[E_RESOURCES]: 8 workers share 1 CPU") == 2, err
    (line,) = [line for line in err.splitlines() if "E_FINGERPRINT" in line]
    assert "/tmp/train" in line and "node2" in line and "node3" not in line, err
