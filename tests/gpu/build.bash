# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# build.bash - libddp, ddp-train, the modules and the tests by gcc and nvcc alone
#
# All of it goes to $dir. Objects are made side by side, then linked; what a link needs of the archives is
# the linker's to find out. With $emulate the CUDA engine is made of its kernels compiled for the host, and
# of what stands for CUDA, cuDNN, cublasLt and NCCL in tests/emulated.
#
# shellcheck disable=SC2054,SC2154,SC2206 # options of compilers have commas and words; variables are of toolkit.bash and run

engine=runtime/train/cuda

# listed VARIABLE FILE: the sources that a Makefile.am has there
listed() {
	awk -v name="$1" '$1 == name { on = 1 } on { print } !/\\$/ { on = 0 }' "$2" | grep -oE '[a-z0-9-]+\.(c|cc)\>'
}

# What calls CUDA and its libraries, and is replaced under emulation: all but the engine itself.
is_of_cuda() { ! listed libengine_la_SOURCES $engine/Makefile.am | grep -qx -- "${1##*/}"; }

c_sources() { compgen -G "$1" | grep -vE '/(pmix[^/]*|ucx[^/]*|mpi|train-options-doc|ddp-train)\.c$'; }

# What Makefile.am of the directory says beyond the usual.
flags_of() {
	case $1 in
	runtime/train/net/* | runtime/train/optim/*) echo -ffp-contract=off ;;
	runtime/train/data/*) echo -ffp-contract=off -fno-math-errno -fno-trapping-math ;;
	tests/gpu/shards.c | tests/bench/shards.c) [[ $emulate == no ]] || echo -DSHARDS_ON_HOST ;;
	# The reference of tests: as fast as this machine can, since it runs nowhere else.
	*/math-plain.c) [[ $build_only == yes ]] || echo -O3 -march=native ;;
	*.cu) sed -n "s/^\(.* \)\?$(basename "$1" .cu)\.lo\( .*\)\?: kernel_flags = //p" $engine/Makefile.am ;;
	esac
}

object_of() { local name=${1//\//_}; echo "$dir/${name%.*}.o"; }

# plan ARCHIVE SOURCE...: objects to be made, and what they are part of
plan() {
	local archive=$1 source
	shift
	for source; do
		[[ " ${sources[*]} " == *" $source "* ]] || sources+=("$source")
		objects[$archive]+=$(object_of "$source")$'\n'
	done
}

# fingerprint COMMAND...: of what a command reads, as its last run told, and of its words
fingerprint() {
	{ printf '%s\n' "$@" && sed 's/^[^:]*: *//; s/\\$//' "$object.d" | xargs cat; } 2>/dev/null | sha256sum
}

# compile SOURCE: one object, unless it is there already; for xargs
compile() {
	local source=$1 object words=()
	object=$(object_of "$source")
	case $emulate:$source in
	no:*.cu)
		# shellcheck disable=SC2207 # words
		words=("$nvcc" -std=c++17 "${nvcc_optimise[@]}" -lineinfo -arch="$arch" $(flags_of "$source") ${NVCCFLAGS:-} "${here[@]}"
			-Xcompiler -fPIC,-fvisibility=hidden,-fno-exceptions,-fno-threadsafe-statics,-Wall,-Wextra)
		;;
	yes:*.cu | *.cc)
		words=("${CXX:-g++}" -x c++ -std=gnu++17 "$optimise" "${warn[@]}" -ffp-contract=off "${here[@]}"
			-iquote tests/emulated -iquote $engine)
		;;
	*)
		# shellcheck disable=SC2207 # words
		words=("${CC:-gcc}" -std=gnu11 "$optimise" "${warn[@]}" "${here[@]}" "${includes[@]}" -iquote tests/gpu
			-iquote tests/emulated -iquote $engine -iquote tests/runtime -pthread -DDDP_MODULE_DIR="\"$dir\"" $(flags_of "$source"))
		;;
	esac
	words+=(-MMD -MF "$object.d" -c "$source" -o "$object")
	[[ ! -e $object || $(fingerprint "${words[@]}") != "$(cat "$object.key" 2>/dev/null)" ]] || return 0
	rm -f "$object" "$dir/complete"
	"${words[@]}" || { echo "not ok 1 - $source compiles"; return 1; }
	fingerprint "${words[@]}" >"$object.key"
}

# What configure and make would have written.
write_generated() {
	local zlib=''
	echo '#include <zlib.h>' | "${CC:-gcc}" -E - >/dev/null 2>&1 && zlib='#define HAVE_ZLIB 1'
	[[ -z $zlib ]] || zlib_link=(-lz)
	cat >"$dir/config.h" <<-END_OF_CONFIG
		#define _GNU_SOURCE 1
		#define PACKAGE_VERSION "$(sed -n 's/^AC_INIT(\[[^]]*\], \[\([^]]*\)\].*/\1/p' configure.ac)"
		#define HAVE_CUDA 1
		#define HAVE_NCCL 1
		$zlib
	END_OF_CONFIG
	awk -v dir=runtime/train/report -f runtime/train/report/embed.awk runtime/train/report/page.html \
		>"$dir/page-assets.h"
}

# Which sources there are, and what of.
plan_all() {
	local source part
	declare -gA objects=()
	sources=()
	mapfile -t list < <(c_sources 'runtime/base/*.c' | grep -v /card-cuda)
	plan base "${list[@]}"
	for part in world store local wide comm sampling gradient state; do
		mapfile -t list < <(c_sources "runtime/$part/*.c")
		plan ddp "${list[@]}"
	done
	mapfile -t list < <(c_sources 'runtime/device/*.c' | grep -vE '/(nccl-[^/]*|shard-gpu)\.c$')
	plan ddp "${list[@]}"
	mapfile -t list < <(c_sources 'runtime/train/*.c'; c_sources 'runtime/train/*/*.c' |
		grep -vE '/(cuda|onednn)/')
	plan train "${list[@]}"
	plan main runtime/train/ddp-train.c
	[[ $emulate == yes ]] || plan hello job-templates/hello-ddp-cuda.cu
	plan_engine
	plan_shard
	if [[ $emulate == no && -n $nccl ]]; then
		mapfile -t list < <(c_sources 'runtime/device/nccl-*.c')
		plan nccl runtime/base/card-cuda.c "${list[@]}"
	fi
	for source in "${tests[@]}"; do plan "test_$source" "tests/gpu/$source.c"; done
	plan test_layers tests/bench/layers.c
	plan test_bench_shards tests/bench/shards.c
}

# The engine of shared GPUs; under emulation one whose GPU is host memory, with what stands beside it for NCCL.
plan_shard() {
	plan shard runtime/device/sum.cu
	plan nccl runtime/device/wire.cu
	if [[ $emulate == no ]]; then
		plan shard runtime/device/shard-gpu.c runtime/base/card-cuda.c
	else
		plan host tests/runtime/host-stream.c
		plan host_shard tests/runtime/shard-host.c
		plan host_nccl tests/runtime/nccl-host.c
	fi
}

plan_engine() {
	local source
	for source in "$engine"/*.c; do
		[[ -e $source ]] || continue
		if [[ $emulate == no ]] || ! is_of_cuda "$source"; then
			plan cuda "$source"
		fi
	done
	plan cuda "$engine"/*.cu
	if [[ $emulate == no ]]; then
		plan cuda runtime/base/card-cuda.c
		return
	fi
	for source in $(listed libemulated_la_SOURCES tests/emulated/Makefile.am); do
		plan cuda "tests/emulated/$source"
	done
}

archive() {
	rm -f "$dir/lib$1.a"
	# shellcheck disable=SC2086 # words
	ar rcs "$dir/lib$1.a" ${objects[$1]}
}

# link OUTPUT WORD...: and say how it went
link() {
	local output=$1
	shift
	if "${CC:-gcc}" -o "$dir/$output" "$@" "${link_flags[@]}"; then
		echo "ok 1 - $output is built"
	else
		echo "not ok 1 - $output is built"
		return 1
	fi
}

shared=(-shared -Wl,-z,now -Wl,--no-undefined)

link_libraries() {
	local rpath=-Wl,-rpath,$dir
	link_flags=(-pthread -L"$dir" "$rpath" -Wl,--gc-sections -ldl -lm "${zlib_link[@]}")
	cuda_link=(-lstdc++)
	if [[ $emulate == no ]]; then
		cuda_link=("$cudart" -Wl,-rpath,"$(dirname "$cudart")")
	fi
	archive base && archive train && archive cuda || return
	# shellcheck disable=SC2086 # words
	link libddp.so "${shared[@]}" -Wl,-soname,libddp.so ${objects[ddp]} "$dir/libbase.a" || return
	train_link=("$dir/libtrain.a" "$dir/libddp.so" "$dir/libbase.a")
	# The whole of libddp for tests that look inside.
	archive ddp && mv "$dir/libddp.a" "$dir/libwhole.a" || return
	link ddp-train "$(object_of runtime/train/ddp-train.c)" "${train_link[@]}" || return
	link layers "$(object_of tests/bench/layers.c)" "${train_link[@]}"
}

# link_shard: ddp_shard.so; under emulation that over host memory, and its NCCL.
link_shard() {
	# shellcheck disable=SC2086 # words
	if [[ $emulate == no ]]; then
		link ddp_shard.so "${shared[@]}" ${objects[shard]} "$dir/libbase.a" "${cuda_link[@]}"
	else
		link ddp_shard.so "${shared[@]}" ${objects[host_shard]} ${objects[host]} "$dir/libwhole.a" \
			"$dir/libbase.a" &&
			link ddp_nccl.so "${shared[@]}" ${objects[host_nccl]} ${objects[host]} "$dir/libwhole.a" \
				"$dir/libbase.a"
	fi
}

# The two modules; each is left out, with a line, where what it needs is not there.
link_modules() {
	if [[ $emulate == no ]]; then
		if [[ -z $nccl ]]; then
			echo "ok 1 - ddp_nccl.so # skip ${absent[*]}"
		else
			# shellcheck disable=SC2086 # words
			link ddp_nccl.so "${shared[@]}" ${objects[nccl]} "$dir/libbase.a" \
				"${cuda_link[@]}" "$nccl" -Wl,-rpath,"$(dirname "$nccl")" || return
		fi
		[[ -n $cudnn && -n $cublaslt ]] || {
			echo "ok 1 - ddp_cuda.so # skip ${absent[*]}"
			return 0
		}
		libraries=("$cudnn" "$cublaslt" -Wl,-rpath,"$(dirname "$cudnn"):$(dirname "$cublaslt")")
	fi
	if ! grep -qs ddp_module "$engine"/*.c; then
		echo "ok 1 - ddp_cuda.so # skip this tree has no CUDA engine yet"
		return 0
	fi
	# shellcheck disable=SC2086 # words
	link ddp_cuda.so "${shared[@]}" ${objects[cuda]} "${train_link[@]}" "${cuda_link[@]}" "${libraries[@]}"
}

# link_test NAME: kernel tests are linked with the kernels, the rest with ddp-train's insides.
link_test() {
	local object=$dir/tests_gpu_$1.o
	case $1 in
	kernels_shards | kernels_wire)
		link "$1" "$object" "$(object_of runtime/device/sum.cu)" "$(object_of runtime/device/wire.cu)" \
			"$dir/libcuda.a" "$dir/libtrain.a" "$dir/libwhole.a" "$dir/libbase.a" "${cuda_link[@]}" \
			"${libraries[@]}"
		;;
	nccl | shards) link_shards "$1" "$object" ;;
	kernels_*)
		link "$1" "$object" "$dir/libcuda.a" "$dir/libtrain.a" "$dir/libwhole.a" "$dir/libbase.a" \
			"${cuda_link[@]}" "${libraries[@]}"
		;;
	networks) link "$1" "$object" "${train_link[@]}" -rdynamic ;;
	probe) link "$1" "$object" "${cuda_link[@]}" ;;
	esac
}

# link_shards OUTPUT OBJECT: ranks with all of libddp in them, which they look into.
link_shards() {
	link "$1" "$2" "$dir/libwhole.a" "$dir/libbase.a" "${cuda_link[@]}"
}

# The library that traces kernels: another CUPTI than CUDA 13's may have none.
link_trace() {
	"${CC:-gcc}" -std=gnu11 -O2 -fPIC -shared "${includes[@]}" tests/gpu/trace.c -o "$dir/trace.so" "$cupti" \
		-Wl,-rpath,"${cupti%/*}" 2>"$dir/logs/trace.log" && echo "ok 1 - trace.so is built" ||
		echo "ok 1 - trace.so # skip no CUPTI of CUDA 13: ${cupti:-no libcupti} $(head -n 1 "$dir/logs/trace.log")"
}

# build: everything that is not there yet. A test that cannot be linked is told, and the others run.
build() {
	warn=(-Wall -Wextra -fPIC -fvisibility=hidden -ffunction-sections -g)
	# A card's time is not to end at another compiler's new warning.
	[[ $build_only$emulate == nono ]] || warn+=(-Werror)
	here=(-I"$dir" -Iruntime -Iruntime/train)
	nvcc_optimise=(-O2)
	[[ $optimise == -O2 ]] || nvcc_optimise=(-O1 -Xptxas -O1)
	zlib_link=() libraries=()
	write_generated
	plan_all
	compile_all || { rm -f "$dir"/*.so "$dir/ddp-train" "$dir/complete"; return 1; }
	if [[ -e $dir/complete && "$(cat "$dir/complete")" == "${tests[*]} ${sources[*]}" ]]; then
		echo "ok 1 - the build in $dir is complete"
		return
	fi
	# What was tried with another build is tried again.
	rm -f "$dir"/*.so "$dir/ddp-train" "$dir/complete"
	: >"$dir/done"
	link_all && echo "${tests[*]} ${sources[*]}" >"$dir/complete"
}

link_all() {
	local IFS=$'\n' test status=0 # paths have spaces
	if ! link_libraries || ! link_modules || ! link_shard; then
		echo "not ok 1 - everything is linked"
		return 1
	fi
	link_shards bench_shards "$(object_of tests/bench/shards.c)"
	for test in "${tests[@]}"; do link_test "$test" || status=1; done
	[[ $emulate == yes ]] ||
		link hello-ddp-cuda "$(object_of job-templates/hello-ddp-cuda.cu)" "$dir/libddp.so" "${cuda_link[@]}" || status=1
	[[ $emulate == yes ]] || link_trace
	return $status
}

# Those that take longest first. Arrays are not inherited: what compile() reads goes along as text.
compile_all() {
	local state
	state=$(declare -p engine dir emulate build_only optimise arch nvcc includes warn here nvcc_optimise
		declare -f compile fingerprint object_of flags_of)
	export state
	# shellcheck disable=SC2016 # for the shells that compile
	printf '%s\n' "${sources[@]}" | awk '{ print (/\.cu$/ ? 0 : /kernel|math-plain/ ? 1 : 2), $0 }' | sort -s -k1,1n |
		cut -d' ' -f2- | xargs -d '\n' -P "$jobs" -n 1 bash -c 'eval "$state"; compile "$1"' compile
}
