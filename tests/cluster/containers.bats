# SPDX-License-Identifier: Apache-2.0
# Each task runs in its own container. The ranks of a node share memory or, if they cannot, use TCP.
#
# shellcheck disable=SC2154 # rc, out and err come from try
# shellcheck disable=SC2016 # variables in single quotes are expanded by the task's shell

load lib

TRAIN=(ddp-train mnist --samples 1000 -e 1 -b 16 --deterministic -q -m)

setup_file()
{
	cluster_up --nodes 2
	install_runtime
	make_root
	make_wrappers
	mc srun -N2 --ntasks-per-node=2 --ddp "${TRAIN[@]}" "$WORK/shared" >"$TOP/shared.log"
	mc srun -N2 --ntasks-per-node=2 --ddp env DDP_LOCAL=off "${TRAIN[@]}" "$WORK/apart" >"$TOP/apart.log"
	mv "$WORK/shared" "$WORK/apart" "$TOP"
}

teardown_file() { cluster_down; }

teardown()
{
	end_jobs
	rm -rf "${WORK:?}"/* "$WORK"/.ddp
}

# Creates $ROOT, a root file system with our programs in /ddp and the libraries that they need.
make_root()
{
	local file
	ROOT=$TOP/root
	mkdir -m 755 "$ROOT" "$ROOT"/{bin,dev,etc,home,proc,root,sys,tmp,usr,usr/bin}
	mkdir -p "$ROOT$WORK"
	cp -a "$INST" "$ROOT/ddp"
	cp "$(command -v sh)" "$(command -v sleep)" "$ROOT/bin"
	ldd "$ROOT"/bin/* "$ROOT"/ddp/bin/ddp-{info,train} "$DDP_MODULES"/ddp_onednn.so |
		grep -o '/[^ ]*' | grep -v '[:]$' | sort -u >"$TOP/libraries"
	while read -r file; do
		[[ $file != "$INST"/* ]] || continue
		mkdir -p "$ROOT$(dirname "$file")"
		cp -L "$file" "$ROOT$file"
	done <"$TOP/libraries"
	echo "root:x:0:0:root:/root:/bin/sh" >"$ROOT/etc/passwd"
	# Mount points for Charliecloud.
	touch "$ROOT"/etc/{group,hosts,resolv.conf}
	chmod -R a+rX "$ROOT"
	export ROOT
}

# wrapper NAME <COMMAND: creates the script $TOP/NAME PROGRAM..., which runs a program in a container.
wrapper()
{
	{
		echo '#!/bin/sh'
		echo 'unset DDP_MODULES LD_LIBRARY_PATH'
		echo 'PATH=/ddp/bin:/bin:$PATH'
		cat
	} >"$TOP/$1"
	chmod 755 "$TOP/$1"
}

# Creates scripts that run each task in its own container. In scripts named without-sockets, a seccomp filter prevents the
# creation of Unix sockets.
make_wrappers()
{
	local bwrap
	# the command of doc/containers.md, which needs $WORK in $ROOT
	bwrap=$(grep -o 'bwrap --ro-bind ROOT .*--chdir $PWD' "$DDP_SRCDIR/doc/containers.md")
	bwrap=${bwrap//ROOT/$ROOT}
	bwrap="${bwrap//'$PWD'/$WORK} --unshare-user --unshare-pid --unshare-ipc"
	no_unix_sockets >"$TOP/filter"
	chmod 644 "$TOP/filter"
	wrapper in-bwrap <<<"exec $bwrap -- \"\$@\""
	wrapper in-bwrap-without-sockets <<<"exec $bwrap --seccomp 9 9<$TOP/filter -- \"\$@\""
	wrapper in-bwrap-n2-without-sockets <<<"
if [ \"\$SLURMD_NODENAME\" = n2 ]; then exec $bwrap --seccomp 9 9<$TOP/filter -- \"\$@\"; fi
exec $bwrap -- \"\$@\""
	wrapper in-bwrap-unmounted <<<"exec ${bwrap/--bind $WORK $WORK --chdir $WORK/--chdir /} -- \"\$@\""
	wrapper in-charliecloud <<<"exec ch-run -b $WORK:$WORK -c $WORK $ROOT -- \"\$@\""
	wrapper in-podman <<<"exec podman --runtime runc --root $TOP/podman/root.\$SLURM_PROCID \\
	--runroot $TOP/podman/run.\$SLURM_PROCID --storage-driver vfs --cgroup-manager=cgroupfs run --rm \\
	--ulimit nofile=1024:1024 --ulimit nproc=1000:1000 --network=host --env-host -v $WORK:$WORK -w $WORK \\
	--rootfs $ROOT \"\$@\""
}

# Prints a seccomp filter in the kernel's binary form. With this filter socket(AF_UNIX) fails with EPERM. The system call numbers
# are those of x86-64.
no_unix_sockets()
{
	/usr/bin/python3 -c '
import struct, sys
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
for code, yes, no, value in (
        (LOAD, 0, 0, 0), (EQUAL, 0, 3, 41),       # the call is socket()
        (LOAD, 0, 0, 16), (EQUAL, 0, 1, 1),       # its first argument is AF_UNIX
        (RETURN, 0, 0, 0x00050001), (RETURN, 0, 0, 0x7fff0000)):
    sys.stdout.buffer.write(struct.pack("=HBBI", code, yes, no, value))'
}

needs_bwrap()
{
	command -v bwrap >/dev/null || skip "bubblewrap is not installed"
	as_user "$TOP/in-bwrap" sh -c : || skip "this host lets bubblewrap make no container"
}

needs_x86() { [ "$(uname -m)" = x86_64 ] || skip "the filter is for x86-64"; }

# shares_memory WRAPPER: checks that four ranks in containers share memory, and that a training gives the same weights as without
# containers.
shares_memory()
{
	try mc srun -N2 --ntasks-per-node=2 --ddp "$TOP/$1" ddp-info --max-bytes 65536
	same "$rc" 0
	same "$err" ""
	has "$out" '4 ranks on 2 nodes, started by srun --ddp or ddp-exec, rendezvous by file, between nodes: tcp$'
	has "$out" '^within nodes: shared memory$'
	same "$(grep -c ' exact$' <<<"$out")" 5
	echo "$out" >"$TOP/info"
	try mc srun -N2 --ntasks-per-node=2 --ddp "$TOP/$1" "${TRAIN[@]}" model
	same "$rc" 0
	same "$err" ""
	cmp "$WORK/model" "$TOP/shared"
	[ ! -e "$WORK/.ddp" ]
}

@test "bubblewrap with pid, ipc and user namespaces of each task: ranks share memory, with bit-equal weights" {
	needs_bwrap
	shares_memory in-bwrap
}

@test "Charliecloud: ranks share memory, with bit-equal weights" {
	command -v ch-run >/dev/null || skip "charliecloud-runtime is not installed"
	export USER=nobody
	as_user "$TOP/in-charliecloud" sh -c : || skip "this host lets Charliecloud make no container"
	shares_memory in-charliecloud
}

@test "without the plugin, ranks share memory through a directory that they create and remove" {
	needs_bwrap
	try mc srun -N2 --ntasks-per-node=2 "$TOP/in-bwrap" ddp-info --no-test
	same "$rc" 0
	has "$out" '4 ranks on 2 nodes, started by srun, rendezvous by file, between nodes: tcp$'
	has "$out" '^within nodes: shared memory$'
	[ ! -e "$WORK/.ddp" ]
}

@test "containers without Unix sockets: ranks of a node use TCP, one warning a node, weights as with DDP_LOCAL=off" {
	needs_bwrap
	needs_x86
	try mc srun -N2 --ntasks-per-node=2 --ddp "$TOP/in-bwrap-without-sockets" ddp-info --max-bytes 65536
	same "$rc" 0
	has "$out" '^within nodes: tcp$'
	same "$(grep -c ' exact$' <<<"$out")" 5
	same "$(wc -l <<<"$err")" 2
	has "$err" '^ddp\[0@n1\]: warning: the 2 ranks of n1 use tcp among themselves instead of shared memory: rank 1 on n1 cannot share the memory of rank 0: .*--security-opt'
	has "$err" '^ddp\[2@n2\]: warning: the 2 ranks of n2 use tcp .* rank 3 on n2 '
	try mc srun -N2 --ntasks-per-node=2 --ddp "$TOP/in-bwrap-without-sockets" "${TRAIN[@]}" model
	same "$rc" 0
	same "$(wc -l <<<"$err")" 2
	cmp "$WORK/model" "$TOP/apart"
}

@test "Unix sockets on one of two nodes only: shared memory there, TCP on the other, exact sums" {
	needs_bwrap
	needs_x86
	try mc srun -N2 --ntasks-per-node=2 --ddp "$TOP/in-bwrap-n2-without-sockets" ddp-info --max-bytes 65536
	same "$rc" 0
	has "$out" '^within nodes: shared memory; tcp on n2$'
	same "$(grep -c ' exact$' <<<"$out")" 5
	same "$(wc -l <<<"$err")" 1
	has "$err" '^ddp\[2@n2\]: warning: the 2 ranks of n2 use tcp'
}

@test "DDP_LOCAL=on: shared memory, or an error with the reason" {
	needs_bwrap
	needs_x86
	try mc srun -N2 --ntasks-per-node=2 --ddp env DDP_LOCAL=on "$TOP/in-bwrap" ddp-info --no-test
	same "$rc" 0
	has "$out" '^within nodes: shared memory$'
	try mc srun -N2 --ntasks-per-node=2 --ddp env DDP_LOCAL=on "$TOP/in-bwrap-without-sockets" ddp-info --no-test
	[ "$rc" -ne 0 ]
	has "$err" 'rank [13] on n[12] cannot share the memory of rank [02]: .*--security-opt.*DDP_LOCAL=auto'
	# When rank 0 fails because of n2, it has already created its socket.
	try mc srun -N2 --ntasks-per-node=2 env DDP_LOCAL=on "$TOP/in-bwrap-n2-without-sockets" ddp-info --no-test
	[ "$rc" -ne 0 ]
	same "$(find "$WORK/.ddp" -name '*.socket')" ""
}

@test "DDP_METHOD=pmix: shared memory through the directory of srun --ddp, TCP without the plugin" {
	needs_bwrap
	needs_pmix
	local bwrap=(env DDP_METHOD=pmix bwrap --dev-bind / / --unshare-user --unshare-pid --proc /proc)
	try mc srun --mpi=pmix -N2 --ntasks-per-node=2 --ddp "${bwrap[@]}" ddp-info --max-bytes 65536
	same "$rc" 0
	has "$out" 'rendezvous by pmix, between nodes: tcp$'
	has "$out" '^within nodes: shared memory$'
	try mc srun --mpi=pmix -N2 --ntasks-per-node=2 "${bwrap[@]}" ddp-info --max-bytes 65536
	same "$rc" 0
	has "$out" '^within nodes: tcp$'
	same "$(grep -c ' exact$' <<<"$out")" 5
	same "$(grep -c 'Start the program with srun --ddp, and mount its rendezvous directory in all containers' <<<"$err")" 2
}

# Prints the process id of rank 1 in the host's pid namespace.
rank_1() { ranks | awk '$2 == 1 { print $1; found = 1 } END { exit !found }'; }

is_training() { rank_1 >/dev/null && grep -q '^epoch 2:' "$TOP/output"; }

@test "a rank killed in its container is named by the other ranks" {
	needs_bwrap
	background env -C "$WORK" DDP_TIMEOUT=300 timeout -k 5 100 "$minicluster" run srun -K0 -N2 --ntasks-per-node=2 --ddp \
		"$TOP/in-bwrap" ddp-train mnist --samples 1000 -e 1000000 -b 16 >"$TOP/output" 2>&1
	within 60 is_training
	kill -9 "$(rank_1)"
	wait $! || true
	has "$(<"$TOP/output")" 'rank 1 on n1 \(pid [0-9]+\) is gone'
}

@test "an unmounted working directory and an unresolvable name give messages with the remedy" {
	needs_bwrap
	try mc srun -N2 --ntasks-per-node=2 --ddp "$TOP/in-bwrap-unmounted" ddp-info --no-test
	[ "$rc" -ne 0 ]
	has "$err" "cannot open $WORK/.ddp: No such file or directory\. In a container, mount $WORK at the same path \(pyxis --container-mounts=$WORK, podman -v $WORK:$WORK, "
	# These variables are unset as if the container's plugin hid the directory from ddp.so.
	try mc srun -N2 --ntasks-per-node=2 --ddp env -u DDP_RENDEZVOUS -u DDP_INIT_METHOD -u DDP_INIT_FILE ddp-info --no-test
	[ "$rc" -ne 0 ]
	has "$err" 'srun --ddp gave this task no directory\. .* mount the working directory in the container .*--ddp-rdzv=DIR'
	try mc env MASTER_ADDR=nowhere.invalid srun -N2 --ntasks-per-node=2 --ddp "$TOP/in-bwrap" ddp-info
	same "$rc" 0
	has "$out" "^warning: rank 0's endpoint nowhere.invalid:.* cannot be reached from n1: .*a container needs the host's /etc/hosts"
}

@test "podman: ranks share memory, with bit-equal weights" {
	command -v podman >/dev/null && command -v runc >/dev/null || skip "podman and runc are not installed"
	[ "$(id -u)" -eq 0 ] || skip "needs root"
	mkdir -p "$TOP/podman"
	SLURM_PROCID=0 "$TOP/in-podman" sh -c : || skip "this host lets podman make no container"
	mc() { (cd "$WORK" && timeout -k 5 "${MC_SECONDS:-120}" "$minicluster" run "$@"); }
	chown root "$WORK"
	shares_memory in-podman
	has "$(<"$TOP/info")" '^warning: /dev/shm of rank 0 on n1 has 6[0-9] MiB, .*--shm-size'
	chown nobody "$WORK"
}
