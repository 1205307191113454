# SPDX-License-Identifier: Apache-2.0
# ddp-train compared with PyTorch's DistributedDataParallel over gloo: two ranks, with the same
# images, initial weights and order of samples. Needs no Slurm.
#
# The limits for losses need a training that does not amplify rounding errors. With the default
# rates, two PyTorch trainings whose weights differ by one ulp differ by 5e-2 after 20 steps of
# mnist, and by more on cifar. So these tests use rates with which such trainings differ by less
# than 1e-6. Another test uses the default rate.

mnist_sgd=(--optimizer sgd --lr 0.05)
mnist_adadelta=(--optimizer adadelta --lr 0.02)
mnist_adamw=(--optimizer adamw --lr 0.0001 --decay 0.01)
mnist_much=(--optimizer sgd --lr 0.02 --nesterov --decay 0.01 --schedule cosine --epochs 3
	--smoothing 0.1 --clip 1)
# a step of cifar is slow
steps=5
[ -z "${DDP_LONG-}" ] || steps=20
cifar_sgd=(--optimizer sgd --lr 0.0001 --nesterov --decay 0.0005 --schedule cosine --epochs 30
	--batch 8 --steps "$steps")

load torch

setup_file()
{
	export GLOO_SOCKET_IFNAME=lo DDP_SOCKET_IFNAME=lo
	local build=${DDP_BUILDDIR:?}
	# The programs must not inherit ranks or settings from the caller.
	unset "${!SLURM_@}" "${!DDP_@}" "${!DNNL_@}" RANK WORLD_SIZE TORCHELASTIC_RUN_ID OPENBLAS_CORETYPE
	export DDP_MODULES=$build/runtime/.libs
	export TRAIN=$build/runtime/train/ddp-train
	ready_up || return 1
	cd "$BATS_FILE_TMPDIR" || return 1
	# With 333 images, the last step of an epoch is shorter, and one image is used twice.
	versus data mnist mnist 333 500
	versus data cifar cifar 333 100
	versus init mnist mnist.st
	versus init cifar cifar.st 2
	theirs mnist_sgd "${mnist_sgd[@]}"
	theirs cifar_sgd "${cifar_sgd[@]}" --save cifar_sgd.st
}

teardown_file() { ready_down; }

setup() { cd "$BATS_FILE_TMPDIR" || return 1; }

versus() { python train.py "$@"; }

# theirs NAME OPTION...: trains with PyTorch, and writes the losses to NAME.torch. NAME begins with
# the network's name.
theirs() { versus run "${1%%_*}" "${1%%_*}" "${1%%_*}.st" "${@:2}" >"$1.torch"; }

# Translates options of train.py into those of ddp-train, and prints one per line.
translated()
{
	while (($#)); do
		case $1 in
		--nesterov) printf '%s\n' --nesterov on ;;
		--decay) printf '%s\n' --weight-decay "$2"; shift ;;
		--smoothing) printf '%s\n' --label-smoothing "$2"; shift ;;
		*) printf '%s\n' "$1" ;;
		esac
		shift
	done
}

# ddp NETWORK OPTION...: runs ddp-train on PyTorch's images, with PyTorch's weights.
ddp()
{
	local -A exact=([mnist]=--no-dropout [cifar]=--no-augment)
	"$TRAIN" "$1" --data "$1" --init "$1.st" "${exact[$1]}" --threads 1 --log-every 1 \
		--warmup 0 --progress off --log-json "$BATS_TEST_TMPDIR/log" --batch 16 --steps 20 "${@:2}" \
		>"$BATS_TEST_TMPDIR/out" 2>&1 || { cat "$BATS_TEST_TMPDIR/out" >&2; return 1; }
}

# ours NAME OPTION...: trains with ddp-train, and writes the losses to $BATS_TEST_TMPDIR/losses. The
# options are those of train.py.
ours()
{
	local options
	mapfile -t options < <(translated "${@:2}")
	ddp "${1%%_*}" -n 2 "${options[@]}"
	versus losses "$BATS_TEST_TMPDIR/log" >"$BATS_TEST_TMPDIR/losses"
}

close() { versus close "$BATS_TEST_TMPDIR/losses" "$1.torch" "${2:-1e-5}"; }

@test "mnist: the first 20 losses, SGD" {
	ours mnist_sgd "${mnist_sgd[@]}" --deterministic
	close mnist_sgd
}

@test "mnist: the first 20 losses, the fastest convolutions" {
	ours mnist_sgd "${mnist_sgd[@]}"
	close mnist_sgd
}

@test "mnist: the first 20 losses, Adadelta and StepLR" {
	theirs mnist_adadelta "${mnist_adadelta[@]}"
	ours mnist_adadelta "${mnist_adadelta[@]}"
	close mnist_adadelta
}

@test "mnist: the first 20 losses, AdamW" {
	theirs mnist_adamw "${mnist_adamw[@]}"
	ours mnist_adamw "${mnist_adamw[@]}"
	close mnist_adamw
}

@test "mnist: the first 20 losses, Nesterov, decay, cosine, label smoothing and clipping" {
	theirs mnist_much "${mnist_much[@]}"
	ours mnist_much "${mnist_much[@]}"
	close mnist_much
}

@test "cifar: the first losses, weights and running statistics, direct convolutions" {
	ours cifar_sgd "${cifar_sgd[@]}" --deterministic --save-model "$BATS_TEST_TMPDIR/model.st"
	close cifar_sgd
	versus same "$BATS_TEST_TMPDIR/model.st" cifar_sgd.st 1e-4
}

@test "cifar: the first losses, the fastest convolutions" {
	ours cifar_sgd "${cifar_sgd[@]}"
	close cifar_sgd
}

@test "cifar: SyncBatchNorm is BatchNorm over the whole batch in one process" {
	local options=("${cifar_sgd[@]}")
	theirs cifar_whole "${options[@]}" --whole --save whole.st
	ours cifar_whole "${options[@]}" --deterministic --sync-bn --save-model "$BATS_TEST_TMPDIR/model.st"
	close cifar_whole
	versus same "$BATS_TEST_TMPDIR/model.st" whole.st 1e-4
	# With SyncBatchNorm, the result must differ from the one without it.
	run close cifar_sgd 1e-3
	[ "$status" -ne 0 ]
}

@test "mnist, default rate: as close to PyTorch as PyTorch's trainings from weights one ulp apart" {
	local seed many=50
	[ -z "${DDP_LONG-}" ] || many=100
	for seed in 1 2 3; do versus ulp mnist.st "$seed" "ulp$seed.st"; done
	versus run mnist mnist mnist.st ulp[1-3].st --steps "$many" >ulp.torch
	if [ "${DDP_LONG-}" ]; then
		ours mnist_default --steps "$many" --deterministic
		versus spread "$BATS_TEST_TMPDIR/losses" ulp.torch 1e-5
	fi
	ours mnist_default --steps "$many"
	versus spread "$BATS_TEST_TMPDIR/losses" ulp.torch 1e-5
}

# PyTorch's evaluation of the saved weights must equal ddp-train's last
# evaluation, within one image.
trained()
{
	local loss hits samples their_loss their_hits their_samples
	ours "$1" "${@:2}" --save-model "$BATS_TEST_TMPDIR/model.st"
	read -r loss hits samples < <(versus last-epoch "$BATS_TEST_TMPDIR/log")
	read -r their_loss their_hits their_samples < \
		<(versus evaluate "$1" "$1" "$BATS_TEST_TMPDIR/model.st")
	echo "ddp-train $loss, $hits of $samples; PyTorch $their_loss, $their_hits of $their_samples"
	[ "$samples" -eq "$their_samples" ]
	((hits - their_hits <= 1 && their_hits - hits <= 1))
	awk -v x="$loss" -v y="$their_loss" 'BEGIN { exit !(x - y <= 1e-4 * y && y - x <= 1e-4 * y) }'
	# The result must be better than chance, or the comparison would show nothing.
	((hits * 4 > samples))
}

@test "mnist: PyTorch loads trained weights and gets the same accuracy" {
	trained mnist --steps 60
}

@test "ddp-train --evaluate of PyTorch's weights" {
	local net theirs
	for net in mnist cifar; do
		"$TRAIN" "$net" --data "$net" --init "$net.st" --evaluate -n 2 --deterministic --progress off \
			--log-json "$BATS_TEST_TMPDIR/log" >"$BATS_TEST_TMPDIR/out" 2>&1 ||
			{ cat "$BATS_TEST_TMPDIR/out" >&2; return 1; }
		theirs=$(versus evaluate "$net" "$net" "$net.st")
		echo "$net: $(versus last-epoch "$BATS_TEST_TMPDIR/log"); PyTorch: $theirs"
		paste <(versus last-epoch "$BATS_TEST_TMPDIR/log") <(echo "$theirs") |
			awk '{ exit !($1 - $4 <= 1e-5 * $4 && $4 - $1 <= 1e-5 * $4 && $3 == $6 &&
				$2 - $5 <= 1 && $5 - $2 <= 1) }'
	done
}

@test "losses in bf16 are as close to those in f32 as with PyTorch's autocast" {
	grep -q avx512_bf16 /proc/cpuinfo || skip 'this CPU has no bf16 arithmetic'
	theirs mnist_adadelta "${mnist_adadelta[@]}"
	theirs mnist_bf16 "${mnist_adadelta[@]}" --bf16
	ours mnist "${mnist_adadelta[@]}" --amp bf16
	versus band mnist_bf16.torch mnist_adadelta.torch 0.01
	versus band "$BATS_TEST_TMPDIR/losses" mnist_adadelta.torch 0.01
	theirs cifar_bf16 "${cifar_sgd[@]}" --bf16
	ours cifar "${cifar_sgd[@]}" --amp bf16
	versus band cifar_bf16.torch cifar_sgd.torch 0.01
	versus band "$BATS_TEST_TMPDIR/losses" cifar_sgd.torch 0.01
}

# Starts two ranks one by one, with torchrun's variables. The oneDNN of rank 1 uses AVX2 only.
@test "ranks on different CPUs and two nodes have PyTorch's losses" {
	local rank status=0 pids=() isa=()
	export MASTER_ADDR=127.0.0.1 MASTER_PORT=7 DDP_RENDEZVOUS=$BATS_TEST_TMPDIR DDP_TIMEOUT=300
	export TORCHELASTIC_RUN_ID=train TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=0
	for rank in 0 1; do
		env "${isa[@]}" RANK="$rank" WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK="$rank" GROUP_WORLD_SIZE=2 \
			"$TRAIN" mnist --data mnist --init mnist.st --no-dropout --threads 1 --log-every 1 --progress off \
			--log-json "$BATS_TEST_TMPDIR/log" --batch 16 --steps 20 "${mnist_sgd[@]}" --deterministic \
			>"$BATS_TEST_TMPDIR/out$rank" 2>&1 &
		pids+=("$!")
		isa=(DNNL_MAX_CPU_ISA=AVX2)
	done
	for rank in 0 1; do wait "${pids[rank]}" || status=1; done
	((status == 0)) || { cat "$BATS_TEST_TMPDIR"/out* >&2; return 1; }
	versus losses "$BATS_TEST_TMPDIR/log" >"$BATS_TEST_TMPDIR/losses"
	close mnist_sgd
}

@test "synthetic digits: more than 97 % correct after two epochs of 20000, 98 % with all 60000" {
	local options=(--samples 20000) least=97
	[ -z "${DDP_LONG-}" ] || options=() least=98
	"$TRAIN" mnist -n 2 --epochs 2 "${options[@]}" --progress off --log-json "$BATS_TEST_TMPDIR/log" \
		>"$BATS_TEST_TMPDIR/out" 2>&1 || { cat "$BATS_TEST_TMPDIR/out" >&2; return 1; }
	read -r _ hits samples < <(versus last-epoch "$BATS_TEST_TMPDIR/log")
	echo "$hits of $samples"
	((samples >= 3333 && hits * 100 > samples * least))
}
