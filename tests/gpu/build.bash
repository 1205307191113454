# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# build.bash - finds CUDA, cuDNN, cublasLt and NCCL, and builds libddp, ddp-train, the modules and the tests with gcc and nvcc
#
# Everything goes to $dir. Only what has changed is compiled again.
#
# shellcheck disable=SC2054,SC2154,SC2206 # compiler options contain commas and words; run sets dir, jobs, arch and so on

engine=runtime/train/cuda

# --- Libraries ------------------------------------------------------------------------

# Prints the directories of NVIDIA's Python packages, such as nvidia/cudnn/lib and nvidia/cu13/include.
python_packages() {
	local candidate
	for candidate in "${PYTHON:-}" python3 /usr/bin/python3; do
		[[ -n $candidate ]] && "$candidate" - 2>/dev/null <<-'END_OF_PYTHON'
			import glob, importlib.util
			spec = importlib.util.find_spec("nvidia")
			for place in spec.submodule_search_locations if spec else []:
			    print("\n".join(sorted(glob.glob(place + "/*"), reverse=True)))
		END_OF_PYTHON
	done | awk '!seen[$0]++'
}

# find_file PATTERN SUBDIRECTORY...: prints the first matching file under $roots. In Python packages, libraries are named
# libX.so.N.
find_file() {
	local pattern=$1 root sub file
	shift
	for root in "${roots[@]}"; do
		for sub; do
			for file in "$root/$sub"/$pattern; do
				[[ -e $file ]] && { echo "$file"; return 0; }
			done
		done
	done
	return 1
}

# find_part VARIABLE HEADER LIBRARY: sets the variable to the library's path and adds the header's directory to includes.
find_part() {
	local header library
	missing="no $2 or no lib$3.so"
	header=$(find_file "$2" include targets/x86_64-linux/include include/x86_64-linux-gnu) || return
	library=$(find_file "lib$3.so*" lib64 lib targets/x86_64-linux/lib lib/x86_64-linux-gnu) || return
	includes+=(-isystem "${header%/*}")
	printf -v "$1" %s "$library"
}

# find_toolkit: sets nvcc, includes, cudart, cudnn, cublaslt and nccl. If a part other than NCCL is not found, sets missing and
# returns 1.
find_toolkit() {
	local root
	nvcc='' includes=() nccl='' roots=()
	root=$(command -v nvcc) && root=$(realpath "$root")
	mapfile -t packages < <(python_packages)
	for root in "${NCCL_HOME:-}" "${CUDNN_HOME:-}" "${CUDA_HOME:-}" "${root%/bin/nvcc}" /usr/local/cuda /usr "${packages[@]}"; do
		[[ -d $root ]] || continue
		roots+=("$root")
		[[ -n $nvcc || ! -x $root/bin/nvcc ]] || nvcc=$root/bin/nvcc
	done
	missing="no nvcc on PATH, in CUDA_HOME, /usr/local/cuda or Python's packages"
	[[ -n $nvcc ]] || return 1
	# Search the compiler's own headers first.
	roots=("$(dirname "$(dirname "$(realpath "$nvcc")")")" "${roots[@]}")
	find_part cudart cuda_runtime_api.h cudart && find_part cudnn cudnn_graph.h cudnn &&
		find_part cublaslt cublasLt.h cublasLt || return 1
	find_part nccl nccl.h nccl || nccl=''
}

# describe_toolkit: prints the versions of the compilers and libraries on one line.
describe_toolkit() {
	local numbers
	numbers=$(printf '#include <%s>\n' cudnn_version.h cublas_api.h ${nccl:+nccl.h} |
		"${CC:-gcc}" "${includes[@]}" -E -dM - 2>/dev/null |
		sed -n 's/^#define \(\(CUDNN\|CUBLAS_VER\|NCCL\)_\(MAJOR\|MINOR\|PATCH\|PATCHLEVEL\)\) /\1 /p' | sort | tr '\n' ' ')
	echo "$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/CUDA \1/p'), $numbers$("${CC:-gcc}" --version | head -n 1)"
}

# --- Compiling ------------------------------------------------------------------------

sources_in() { compgen -G "$1/*.c" | grep -vE '/(pmix[^/]*|mpi|ddp-train)\.c$'; }

# Prints the flags that a Makefile.am sets for this source.
flags_of() {
	case $1 in
	runtime/train/net/* | runtime/train/optim/*) echo -ffp-contract=off ;;
	runtime/train/data/*) echo -ffp-contract=off -fno-math-errno -fno-trapping-math ;;
	# The tests of networks.c compare with this file, which runs on this machine only.
	*/math-plain.c) [[ $build_only == yes ]] || echo -O3 -march=native ;;
	*.cu) sed -n "s/^\(.* \)\?$(basename "$1" .cu)\.lo\( .*\)\?: kernel_flags = //p" $engine/Makefile.am ;;
	esac
}

object_of() { local name=${1//\//_}; echo "$dir/${name%.*}.o"; }

# plan NAME SOURCE...: adds the objects of these sources to NAME.
plan() {
	local name=$1 source
	shift
	for source; do
		[[ " ${sources[*]} " == *" $source "* ]] || sources+=("$source")
		objects[$name]+=$(object_of "$source")$'\n'
	done
}

plan_all() {
	local part
	declare -gA objects=()
	sources=()
	# shellcheck disable=SC2046 # sources have no spaces
	{
		plan base $(sources_in runtime/base | grep -v /gpu-cuda)
		for part in identity store local wide comm sampling gradient state device; do
			plan ddp $(sources_in runtime/$part | grep -vE '/(nccl-engine|cuda-calls|gpu)\.c$')
		done
		plan train $(sources_in runtime/train)
		for part in runtime/train/*/; do
			[[ $part == */cuda/ || $part == */onednn/ ]] || plan train $(sources_in "${part%/}")
		done
		plan cuda $(sources_in $engine) $engine/*.cu runtime/base/gpu-cuda.c
	}
	plan nccl runtime/base/gpu-cuda.c runtime/device/cuda-calls.c runtime/device/wire.cu
	plan gpu runtime/base/gpu-cuda.c runtime/device/cuda-calls.c runtime/device/wire.cu runtime/device/gpu.c
	[[ -z $nccl ]] || plan nccl runtime/device/nccl-engine.c
	plan programs runtime/train/ddp-train.c job-templates/hello-ddp-cuda.cu
	for part in "${tests[@]}"; do plan tests "tests/gpu/$part.c"; done
	plan info runtime/info/card.c runtime/info/sum-tests.c
}

# fingerprint COMMAND...: prints a checksum of the command, and of the files that the command read in its last run.
fingerprint() {
	{ printf '%s\n' "$@" && sed 's/^[^:]*: *//; s/\\$//' "$object.d" | xargs cat; } 2>/dev/null | sha256sum
}

# compile SOURCE: compiles one source, if its object is out of date.
compile() {
	local source=$1 object command
	object=$(object_of "$source")
	# shellcheck disable=SC2207 # words
	if [[ $source == *.cu ]]; then
		command=("$nvcc" -std=c++17 "${nvcc_optimize[@]}" -lineinfo -arch="$arch" $(flags_of "$source") ${NVCCFLAGS:-} "${here[@]}"
			-Xcompiler -fPIC,-fvisibility=hidden,-fno-exceptions,-fno-threadsafe-statics,-Wall,-Wextra)
	else
		command=("${CC:-gcc}" -std=gnu11 "$optimize" "${warn[@]}" "${here[@]}" "${includes[@]}" -iquote tests/gpu
			-iquote tests/emulated -iquote $engine -pthread -DDDP_MODULE_DIR="\"$dir\"" $(flags_of "$source"))
	fi
	command+=(-MMD -MF "$object.d" -c "$source" -o "$object")
	[[ ! -e $object || $(fingerprint "${command[@]}") != "$(cat "$object.key" 2>/dev/null)" ]] || return 0
	rm -f "$object"
	"${command[@]}" || { echo "not ok 1 - $source compiles"; return 1; }
	fingerprint "${command[@]}" >"$object.key"
}

# compile_all: compiles all sources, kernels first because they take longest. compile() gets the arrays as text, because shells do
# not inherit arrays.
compile_all() {
	local state
	state=$(declare -p engine dir build_only optimize arch nvcc includes warn here nvcc_optimize
		declare -f compile fingerprint object_of flags_of)
	export state
	# shellcheck disable=SC2016 # expanded by the shells that compile
	printf '%s\n' "${sources[@]}" | awk '{ print (/\.cu$/ ? 0 : 1), $0 }' | sort -s -k1,1n | cut -d' ' -f2- |
		xargs -d '\n' -P "$jobs" -n 1 bash -c 'eval "$state"; compile "$1"' compile
}

# write_generated: writes the files that configure and make would generate.
write_generated() {
	cat >"$dir/config.h.new" <<-END_OF_CONFIG
		#define _GNU_SOURCE 1
		#define PACKAGE_VERSION "$(sed -n 's/^AC_INIT(\[[^]]*\], \[\([^]]*\)\].*/\1/p' configure.ac)"
		#define HAVE_CUDA 1
		#define HAVE_NCCL 1
	END_OF_CONFIG
	mv "$dir/config.h.new" "$dir/config.h"
	awk -v dir=runtime/train/report -f runtime/train/report/embed.awk runtime/train/report/page.html >"$dir/page-assets.h"
}

# --- Linking --------------------------------------------------------------------------

archive() {
	rm -f "$dir/lib$1.a"
	# shellcheck disable=SC2086 # words
	ar rcs "$dir/lib$1.a" ${objects[${2:-$1}]}
}

# link OUTPUT WORD...: links a program or a module.
link() {
	local output=$1
	shift
	"${CC:-gcc}" -o "$dir/$output" "$@" "${link_flags[@]}" || { echo "not ok 1 - $output is built"; return 1; }
	echo "ok 1 - $output is built"
}

# shellcheck disable=SC2086 # words
link_all() {
	local IFS=$'\n' test # paths may contain spaces
	local shared=(-shared -Wl,-z,now -Wl,--no-undefined) train=("$dir/libtrain.a" "$dir/libddp.so" "$dir/libbase.a")
	local cuda=(-lstdc++ "$cudart" -Wl,-rpath,"${cudart%/*}")
	local libraries=("$cudnn" "$cublaslt" -Wl,-rpath,"${cudnn%/*}:${cublaslt%/*}")
	# All of libddp, for the tests that call its internal functions.
	local whole=("$dir/libcuda.a" "$dir/libtrain.a" "$dir/libwhole.a" "$dir/libbase.a" "${cuda[@]}" "${libraries[@]}")
	archive base && archive train && archive cuda && archive whole ddp || return
	link libddp.so "${shared[@]}" -Wl,-soname,libddp.so ${objects[ddp]} "$dir/libbase.a" &&
		link ddp-train "$(object_of runtime/train/ddp-train.c)" "${train[@]}" &&
		link hello-ddp-cuda "$(object_of job-templates/hello-ddp-cuda.cu)" "$dir/libddp.so" "${cuda[@]}" &&
		link ddp_cuda.so "${shared[@]}" ${objects[cuda]} "${train[@]}" "${cuda[@]}" "${libraries[@]}" &&
		link ddp_gpu.so "${shared[@]}" ${objects[gpu]} "$dir/libbase.a" "${cuda[@]}" || return
	if [[ -n $nccl ]]; then
		link ddp_nccl.so "${shared[@]}" ${objects[nccl]} "$dir/libbase.a" "${cuda[@]}" "$nccl" -Wl,-rpath,"${nccl%/*}" || return
	else
		skip ddp_nccl.so "$missing"
	fi
	for test in "${tests[@]}"; do
		case $test in
		networks) link networks "$dir/tests_gpu_networks.o" "${train[@]}" -rdynamic ;;
		nccl) link nccl "$dir/tests_gpu_nccl.o" "$dir/libwhole.a" "$dir/libbase.a" "${cuda[@]}" ;;
		preflight) link preflight "$dir/tests_gpu_preflight.o" ${objects[info]} "$dir/libwhole.a" "$dir/libbase.a" "${cuda[@]}" ;;
		*) link "$test" "$dir/tests_gpu_$test.o" "$(object_of runtime/device/wire.cu)" "${whole[@]}" ;;
		esac || return
	done
}

# build: compiles and links everything in $dir
build() {
	warn=(-Wall -Wextra -fPIC -fvisibility=hidden -ffunction-sections -g)
	# When the tests also run, a new warning of another compiler must not end the run.
	[[ $build_only == no ]] || warn+=(-Werror)
	here=(-I"$dir" -Iruntime -Iruntime/train)
	optimize=-O2 nvcc_optimize=(-O2)
	# Without --dir the result is deleted, so it need not be fast.
	[[ $build_only$keep != yesno ]] || { optimize=-O1; nvcc_optimize=(-O1 -Xptxas -O1); }
	link_flags=(-pthread -L"$dir" -Wl,-rpath,"$dir" -Wl,--gc-sections -ldl -lm)
	write_generated
	plan_all
	if ! { compile_all && link_all; }; then
		rm -f "$dir/ddp-train"
		echo "not ok 1 - everything is built"
	fi
}
