# SPDX-License-Identifier: Apache-2.0
# MASTER_ADDR and MASTER_PORT: the address and the port that the plugin chooses for rank 0's listener.
# shellcheck disable=SC2016,SC2154

load lib

# The ports in these tests are above minicluster's (up to 29999) and below the kernel's ephemeral range.
setup_file()
{
	cluster_up --nodes 3 --cpus 8 --gpus 0
	# Each node gets its own address in 127.0.0.0/8. All these addresses belong to this host.
	sed -i 's/^\(NodeName=n\([23]\) .*NodeAddr=127\.0\.0\.\)1 /\1\2 /' "$MINICLUSTER_DIR/slurm.conf"
	"$minicluster" run scontrol reconfigure
}
teardown_file() { cluster_down; }
teardown() { other_cluster_down; }

plugin_messages() { grep '^ddp:' "$TOP/err"; }

# value NAME LINES: prints the value of NAME if it is the same in all lines, and otherwise "?".
value()
{
	local values
	values=$(sed -n "s/.* $1=\([^ ]*\).*/\1/p" <<<"$2" | sort -u)
	[ "$(wc -l <<<"$values")" -eq 1 ] && echo "${values:-?}" || echo "?"
}

# --- Address --------------------------------------------------------------------------

# bats test_tags=release
@test "MASTER_ADDR is the NodeAddr of rank 0's node" {
	same "$(show MASTER_ADDR -w 'n[2-3]' -N2 -n2 --ddp)" "0@n2 MASTER_ADDR=127.0.0.2
1@n3 MASTER_ADDR=127.0.0.2"
	same "$(show MASTER_ADDR -w n3 -N1 -n1 --ddp)" "0@n3 MASTER_ADDR=127.0.0.3"
}

# bats test_tags=release
@test "NodeAddr changed by scontrol only: MASTER_ADDR is the address in slurm.conf, which srun uses too" {
	"$minicluster" run scontrol update nodename=n2 nodeaddr=127.0.0.9
	got=$(show MASTER_ADDR -w 'n[2-3]' -N2 -n2 --ddp)
	"$minicluster" run scontrol update nodename=n2 nodeaddr=127.0.0.2
	same "$got" "0@n2 MASTER_ADDR=127.0.0.2
1@n3 MASTER_ADDR=127.0.0.2"
}

@test "-m arbitrary: MASTER_ADDR is that of rank 0's node, not of the first node in the list" {
	printf '%s\n' n3 n1 n2 | as_user tee "$WORK/hosts" >/dev/null
	got=$(SLURM_HOSTFILE=$WORK/hosts show "MASTER_ADDR SLURM_STEP_NODELIST" -n3 -m arbitrary --ddp)
	same "$got" "0@n3 MASTER_ADDR=127.0.0.3 SLURM_STEP_NODELIST=n[1-3]
1@n1 MASTER_ADDR=127.0.0.3 SLURM_STEP_NODELIST=n[1-3]
2@n2 MASTER_ADDR=127.0.0.3 SLURM_STEP_NODELIST=n[1-3]"
}

@test "heterogeneous step: MASTER_ADDR is that of the first component's node" {
	got=$(mc salloc -Q -w 'n[1-2]' -N2 -n2 srun --ddp -n1 -w n2 "$SHOW" MASTER_ADDR : \
		-n1 -w n1 "$SHOW" MASTER_ADDR | sort)
	same "$got" "0@n2 MASTER_ADDR=127.0.0.2
1@n1 MASTER_ADDR=127.0.0.2"
}

@test "a job that scontrol has shrunk: MASTER_ADDR is that of rank 0's node, not of the first in SLURM_NODELIST" {
	local conf node
	other_cluster --nodes 4 --gpus 0
	# These node names have different forms, which a node list and the step layout sort differently.
	conf=$MINICLUSTER_DIR/slurm.conf
	for daemon in slurmctld slurmd-n1 slurmd-n2 slurmd-n3 slurmd-n4; do
		kill "$(<"$MINICLUSTER_DIR/$daemon.pid")"
		within 60 test ! -e "$MINICLUSTER_DIR/$daemon.pid"
	done
	sed -i 's/^NodeName=n3 /NodeName=n3a /; s/^\(NodeName=n4 .*NodeAddr=127\.0\.0\.\)1 /\14 /' "$conf"
	mkdir -p "$MINICLUSTER_DIR/spool/n3a" "$MINICLUSTER_DIR/tmp-n3a"
	(cd / && env -i PATH="$PATH:/usr/sbin:/sbin" slurmctld -c -f "$conf" </dev/null 3>&-)
	for node in n1 n2 n3a n4; do
		start_slurmd "$node"
	done
	within 60 idle_nodes 4
	# shellcheck disable=SC2016
	got=$(mc salloc -Q -w n2,n3a,n4 -N3 -n3 bash -c 'scontrol update jobid="$SLURM_JOB_ID" NodeList=n3a,n4 >/dev/null 2>&1
		. ./slurm_job_"$SLURM_JOB_ID"_resize.sh
		srun --ddp "$SHOW" MASTER_ADDR' | sort)
	same "$got" "0@n3a MASTER_ADDR=127.0.0.1
1@n4 MASTER_ADDR=127.0.0.1"
}

idle_nodes() { [ "$(mc sinfo -h -N -t idle -o %N | wc -l)" -eq "$1" ]; }

@test "a step on one node of a larger job: MASTER_ADDR is that node's address" {
	got=$(mc salloc -Q -w 'n[1-3]' -N3 -n3 srun -N1 -n1 -w n2 --ddp "$SHOW" MASTER_ADDR)
	same "$got" "0@n2 MASTER_ADDR=127.0.0.2"
}

@test "--ddp-master-suffix and SLURM_DDP_MASTER_SUFFIX: MASTER_ADDR is the node's name with the suffix" {
	got=$(show MASTER_ADDR -w 'n[2-3]' -N2 -n2 --ddp --ddp-master-suffix=-ib)
	same "$got" "0@n2 MASTER_ADDR=n2-ib
1@n3 MASTER_ADDR=n2-ib"
	same "$(SLURM_DDP_MASTER_SUFFIX=.x show MASTER_ADDR -w n1 -N1 -n1 --ddp)" "0@n1 MASTER_ADDR=n1.x"
}

@test "MASTER_ADDR and MASTER_PORT in the user's environment are kept, also in PET_RDZV_ENDPOINT" {
	got=$(MASTER_ADDR=my.host MASTER_PORT=4321 show "MASTER_ADDR MASTER_PORT PET_RDZV_ENDPOINT" \
		-w 'n[1-2]' -N2 -n2 --ddp --ddp-master-suffix=-ib)
	same "$got" "0@n1 MASTER_ADDR=my.host MASTER_PORT=4321 PET_RDZV_ENDPOINT=my.host:4321
1@n2 MASTER_ADDR=my.host MASTER_PORT=4321 PET_RDZV_ENDPOINT=my.host:4321"
	same "$(MASTER_ADDR='' show MASTER_ADDR -w n2 -N1 -n1 --ddp)" "0@n2 MASTER_ADDR=127.0.0.2"
}

# --- Port -----------------------------------------------------------------------------

# bats test_tags=release
@test "ports reserved by Slurm: the first is MASTER_PORT, the second is in NCCL_RAS_ADDR" {
	got=$(show "MASTER_PORT NCCL_RAS_ADDR SLURM_STEP_RESV_PORTS" -w 'n[1-2]' -N2 -n2 --ddp)
	first=$(value SLURM_STEP_RESV_PORTS "$got" | grep -o '^[0-9]*')
	has "$first" '^[1-9][0-9]+$'
	same "$(value MASTER_PORT "$got")" "$first"
	same "$(value NCCL_RAS_ADDR "$got")" "localhost:$((first + 1))"
}

@test "--resv-ports=1: the port is MASTER_PORT, and NCCL_RAS_ADDR is unset" {
	got=$(show "MASTER_PORT NCCL_RAS_ADDR SLURM_STEP_RESV_PORTS" -N1 -n1 --resv-ports=1 --ddp)
	port=$(value SLURM_STEP_RESV_PORTS "$got")
	has "$port" '^[1-9][0-9]+$'
	same "$(value MASTER_PORT "$got")" "$port"
	same "$(value NCCL_RAS_ADDR "$got")" UNSET
}

@test "--ddp-port=P sets the port, even or odd, and has priority over SLURM_DDP_PORT" {
	same "$(show "MASTER_PORT NCCL_RAS_ADDR" -w n1 -N1 -n1 --ddp --ddp-port=4445)" \
		"0@n1 MASTER_PORT=4445 NCCL_RAS_ADDR=localhost:4446"
	same "$(SLURM_DDP_PORT=4447 show MASTER_PORT -w n1 -N1 -n1 --ddp)" "0@n1 MASTER_PORT=4447"
	same "$(SLURM_DDP_PORT=4447 show MASTER_PORT -w n1 -N1 -n1 --ddp --ddp-port=4449)" \
		"0@n1 MASTER_PORT=4449"
}

@test "MASTER_PORT in the user's environment has priority over --ddp-port, with a message" {
	got=$(MASTER_PORT=4321 show MASTER_PORT -w n1 -N1 -n1 --ddp --ddp-port=4445)
	same "$got" "0@n1 MASTER_PORT=4321"
	same "$(plugin_messages)" "ddp: MASTER_PORT=4321 of your environment is used, --ddp-port is not"
}

@test "a MASTER_PORT in the user's environment that is no port is refused" {
	MASTER_PORT=70000 try mc srun -N1 -n1 --ddp true
	[ "$rc" -ne 0 ]
	has "$err" "^srun: error: ddp: MASTER_PORT=70000 in your environment is not a port, 1 to 65535; unset it and one is chosen$"
}

# --- The computed port ----------------------------------------------------------------

# compute LO HI CLUSTER.JOB.STEP ATTEMPT: prints the expected port. This function follows the comment in core/endpoint.c, not its
# code. An FNV-1a hash of "job.step.attempt.cluster", mixed as in splitmix64, selects an even port. The port and the next one are
# in the range and, if possible, outside the kernel's ephemeral range.
compute()
{
	/usr/bin/python3 - "$@" <<-'END'
		import sys
		lo, hi, name, attempt = sys.argv[1:]
		cluster, job, step = name.rsplit(".", 2)
		mask = 2**64 - 1
		h = 14695981039346656037
		for byte in f"{job}.{step}.{attempt}.{cluster}".encode():
		    h = (h ^ byte) * 1099511628211 & mask
		h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9 & mask
		h = (h ^ h >> 27) * 0x94d049bb133111eb & mask
		h ^= h >> 31
		first, last = map(int, open("/proc/sys/net/ipv4/ip_local_port_range").read().split())
		fit = [p for p in range(int(lo), int(hi)) if p % 2 == 0]
		out = [p for p in fit if not first <= p <= last and not first <= p + 1 <= last]
		fit = out or fit
		print(fit[h % len(fit)])
	END
}

# check_computed LO HI OPTION...: checks that steps of two jobs have the ports that compute() prints.
check_computed()
{
	local lo=$1 hi=$2 id port
	shift 2
	for _ in 1 2; do
		mc salloc -Q -N1 -n1 bash -c 'for i in 1 2 3; do srun --ddp "$@"; done' - "$@" \
			"$SHOW" DDP_JOB MASTER_PORT NCCL_RAS_ADDR
	done >"$TOP/steps"
	same "$(wc -l <"$TOP/steps")" 6
	while read -r _ id port ras; do
		port=${port#*=}
		same "$port" "$(compute "$lo" "$hi" "${id#*=}" 0)"
		same "$ras" "NCCL_RAS_ADDR=localhost:$((port + 1))"
		echo "$port"
	done <"$TOP/steps" >"$TOP/ports"
	same "$(wc -l <"$TOP/ports")" 6
}

@test "--ddp-port=LO-HI: an even port of the range, computed from job, step and cluster" {
	check_computed 31001 31999 --ddp-port=31001-31999
	# Six ports are chosen out of 499, so nearly all of them must differ.
	[ "$(sort -u "$TOP/ports" | wc -l)" -gt 3 ]
}

# bats test_tags=release
@test "without ports reserved by Slurm, the port is computed in 61000-65533" {
	other_cluster --nodes 1 --gpus 0 --conf MpiParams=
	same "$(show SLURM_STEP_RESV_PORTS -n1)" "0@n1 SLURM_STEP_RESV_PORTS=UNSET"
	check_computed 61000 65533
	[ "$(sort -u "$TOP/ports" | wc -l)" -gt 3 ]
}

@test "ports= in plugstack.conf is ignored if Slurm reserves ports" {
	plugin_arguments ports=32000-32100
	got=$(show "MASTER_PORT SLURM_STEP_RESV_PORTS" -n1 --ddp)
	same "$(value MASTER_PORT "$got")" "$(value SLURM_STEP_RESV_PORTS "$got" | grep -o '^[0-9]*')"
}

@test "a range that overlaps the ephemeral ports: the port is outside of them" {
	read -r first last </proc/sys/net/ipv4/ip_local_port_range
	[ "$first" -gt 3000 ] || skip "the ephemeral range begins at $first"
	check_computed $((first - 40)) $((first + 1000)) "--ddp-port=$((first - 40))-$((first + 1000))"
	[ "$(sort -n "$TOP/ports" | tail -n 1)" -lt "$first" ]
	# A range that is completely within the ephemeral ports can be used too.
	[ "$last" -gt $((first + 100)) ] || return 0
	check_computed $((first + 2)) $((first + 100)) "--ddp-port=$((first + 2))-$((first + 100))"
}

@test "--ddp-port with a range that has one even port, and with a range of one port" {
	same "$(show MASTER_PORT -w n1 -N1 -n1 --ddp --ddp-port=31001-31003)" "0@n1 MASTER_PORT=31002"
	same "$(show MASTER_PORT -w n1 -N1 -n1 --ddp --ddp-port=31001-31001)" "0@n1 MASTER_PORT=31001"
}

@test "a restarted job has another port" {
	same "$(show "DDP_ATTEMPT" -w n1 -N1 -n1 --ddp)" "0@n1 DDP_ATTEMPT=0"
	got=$(mc salloc -Q -w n1 -N1 -n1 env SLURM_RESTART_COUNT=3 srun --ddp --ddp-port=31000-31999 \
		"$SHOW" DDP_JOB DDP_ATTEMPT MASTER_PORT)
	same "$(value DDP_ATTEMPT "$got")" 3
	wanted=$(compute 31000 31999 "$(value DDP_JOB "$got")" 3)
	same "$(value MASTER_PORT "$got")" "$wanted"
}

# --- Concurrent steps and jobs --------------------------------------------------------

# Creates the script print-port COUNT DIRECTORY. It prints its port as soon as COUNT tasks run at the same time.
write_print_port()
{
	as_user tee "$WORK/print-port" >/dev/null <<-'END'
		#!/bin/bash
		: >"$2/$SLURM_JOB_ID.$SLURM_STEP_ID"
		for ((i = 0; i < 600; i++)); do
			files=("$2"/*)
			if [ "${#files[@]}" -ge "$1" ]; then
				echo "$MASTER_PORT"
				exit 0
			fi
			sleep 0.05
		done
		exit 1
	END
	as_user chmod +x "$WORK/print-port"
}

@test "two concurrent steps of one job have different ports, ten times" {
	write_print_port
	mc salloc -Q -w n1 -N1 -n2 bash -c 'for i in {1..10}; do
		mkdir step.$i
		srun --ddp --exact -n1 ./print-port 2 step.$i >step.$i.a &
		srun --ddp --exact -n1 ./print-port 2 step.$i >step.$i.b || exit 1
		wait $! || exit 1
	done' 2>"$TOP/err"
	for i in {1..10}; do
		same "$(cat "$WORK/step.$i".[ab] | grep -c '^[1-9][0-9]*$')" 2
		same "$(sort -u "$WORK/step.$i".[ab] | wc -l)" 2
	done
}

# JAX's own Slurm detection computes the port from the job id, so that two steps of a job would use the same port.
@test "JAX_COORDINATOR_ADDRESS: the step's MASTER_ADDR and MASTER_PORT, or the user's value" {
	got=$(mc salloc -Q -N1 -n2 bash -c 'for i in 1 2; do srun -n1 --ddp "$@" & done; wait' - \
		"$SHOW" MASTER_ADDR MASTER_PORT JAX_COORDINATOR_ADDRESS)
	same "$(sed -n 's/.* MASTER_ADDR=\(.*\) MASTER_PORT=\(.*\) JAX_COORDINATOR_ADDRESS=\1:\2$/\2/p' <<<"$got" | sort -u | wc -l)" 2
	same "$(JAX_COORDINATOR_ADDRESS=me:5 show JAX_COORDINATOR_ADDRESS -w n1 -N1 -n1 --ddp)" "0@n1 JAX_COORDINATOR_ADDRESS=me:5"
}

@test "two concurrent jobs on one node have different ports, ten times" {
	write_print_port
	for i in {1..10}; do
		as_user mkdir "$WORK/job.$i"
		mc srun --ddp -w n1 -N1 -n1 ./print-port 2 "job.$i" >"$TOP/a" 2>/dev/null &
		first=$!
		mc srun --ddp -w n1 -N1 -n1 ./print-port 2 "job.$i" >"$TOP/b" 2>/dev/null
		wait $first
		same "$(cat "$TOP/a" "$TOP/b" | grep -c '^[1-9][0-9]*$')" 2
		same "$(sort -u "$TOP/a" "$TOP/b" | wc -l)" 2
	done
}

# --- Connecting -----------------------------------------------------------------------

@test "rank 1 connects to rank 0 at MASTER_ADDR and MASTER_PORT on nodes whose names do not resolve" {
	as_user tee "$WORK/call.py" >/dev/null <<-'END'
		import os, socket, time
		end = time.monotonic() + 30
		here = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
		if os.environ["RANK"] == "0":
		    server = socket.create_server(here)
		    server.settimeout(30)
		    call, _ = server.accept()
		    call.sendall(b"rank 0 on " + os.environ["SLURMD_NODENAME"].encode())
		else:
		    while True:
		        try:
		            call = socket.create_connection(here, timeout=1)
		            break
		        except OSError:
		            assert time.monotonic() < end, here
		            time.sleep(0.05)
		    print(call.makefile().read(), "answers", os.environ["SLURMD_NODENAME"])
	END
	! getent hosts n2 >/dev/null || skip "this machine's resolver knows an n2"
	got=$(mc srun --ddp -w 'n[2-3]' -N2 -n2 /usr/bin/python3 call.py)
	same "$got" "rank 0 on n2 answers n3"
	printf '%s\n' n3 n1 | as_user tee "$WORK/hosts" >/dev/null
	got=$(SLURM_HOSTFILE=$WORK/hosts mc srun --ddp -m arbitrary -n2 /usr/bin/python3 call.py)
	same "$got" "rank 0 on n3 answers n1"
}
