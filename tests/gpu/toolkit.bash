# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# toolkit.bash - where CUDA, cuDNN, cublasLt and NCCL are: a toolkit, or Python's packages
#
# Packages of one name lay themselves out as nvidia/cudnn/lib, nvidia/cublas/include, nvidia/cu13/lib, and
# their libraries have no name without a number: libcudnn.so.9. So libraries are found by a pattern.

# The directories that Python has packages of NVIDIA's in.
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

# find_in PATTERN DIRECTORY...: the first file that matches, in the first directory that has one.
find_in() {
	local pattern=$1 dir file
	shift
	for dir; do
		for file in "$dir"/$pattern; do
			[[ -e $file ]] && { echo "$file"; return 0; }
		done
	done
	return 1
}

# Fills roots: what may have bin, include and lib; and packages.
find_roots() {
	local on_path
	on_path=$(command -v nvcc) && on_path=$(dirname "$(dirname "$(realpath "$on_path")")")
	mapfile -t packages < <(python_packages)
	roots=()
	local root
	for root in "${NCCL_HOME:-}" "${CUDNN_HOME:-}" "${CUDA_HOME:-}" "$on_path" /usr/local/cuda /usr \
		"${packages[@]}"; do
		[[ -d $root ]] && roots+=("$root")
	done
}

# find_header NAME VARIABLE, find_library NAME VARIABLE: its directory, its path. Else why not in missing.
find_header() {
	local dirs=() root file
	for root in "${roots[@]}"; do
		dirs+=("$root/include" "$root/targets/x86_64-linux/include" "$root/include/x86_64-linux-gnu")
	done
	if file=$(find_in "$1" "${dirs[@]}"); then
		printf -v "$2" %s "$(dirname "$file")"
		return 0
	fi
	missing="no $1"
	return 1
}

find_library() {
	local dirs=() root file
	for root in "${roots[@]}"; do
		dirs+=("$root/lib64" "$root/lib" "$root/targets/x86_64-linux/lib" "$root/lib/x86_64-linux-gnu")
	done
	if file=$(find_in "lib$1.so" "${dirs[@]}") || file=$(find_in "lib$1.so.[0-9]*" "${dirs[@]}"); then
		printf -v "$2" %s "$file"
		return 0
	fi
	missing="no lib$1"
	return 1
}

# find_toolkit: fills nvcc, includes (flags), cudart, cudnn, cublaslt, nccl (paths). What is not there leads
# to a line in missing; nccl may be empty, and so may cudnn and cublaslt, and absent says why then.
find_toolkit() {
	local cuda_include cudnn_include cublas_include nccl_include dirs=() root
	absent=()
	find_roots
	for root in "${roots[@]}"; do dirs+=("$root/bin"); done
	nvcc=$(find_in nvcc "${dirs[@]}") || {
		missing="no nvcc on PATH, in CUDA_HOME, /usr/local/cuda or Python's packages"
		return 1
	}
	# The headers of the compiler in use come first.
	roots=("$(dirname "$(dirname "$(realpath "$nvcc")")")" "${roots[@]}")
	find_header cuda_runtime_api.h cuda_include && find_library cudart cudart || return 1
	cudnn='' cublaslt='' nccl=''
	includes=(-isystem "$cuda_include")
	if find_header cudnn_graph.h cudnn_include && find_library cudnn cudnn; then
		includes+=(-isystem "$cudnn_include")
	else
		absent+=("cuDNN: $missing")
	fi
	if find_header cublasLt.h cublas_include && find_library cublasLt cublaslt; then
		includes+=(-isystem "$cublas_include")
	else
		absent+=("cublasLt: $missing")
	fi
	if find_header nccl.h nccl_include && find_library nccl nccl; then
		includes+=(-isystem "$nccl_include")
	else
		absent+=("NCCL: $missing; NCCL_HOME says where it is")
	fi
}

# define NAME HEADER: a number that a header of the toolkit has.
header_number() {
	echo "#include <$2>
		DDP_NUMBER $1" | "${CC:-gcc}" "${includes[@]}" -E -P - 2>/dev/null |
		sed -n 's/^ *DDP_NUMBER *//p'
}

# The releases that everything was built with, on one line.
describe_toolkit() {
	local text number
	text="CUDA $("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')"
	[[ -z $cudnn ]] || text+=", cuDNN $(header_number CUDNN_MAJOR cudnn_version.h).$(
		header_number CUDNN_MINOR cudnn_version.h)"
	[[ -z $cublaslt ]] || text+=", cublasLt $(header_number CUBLAS_VER_MAJOR cublas_api.h)"
	if [[ -n $nccl ]]; then
		number=$(header_number NCCL_MAJOR nccl.h)
		text+=", NCCL $number.$(header_number NCCL_MINOR nccl.h).$(header_number NCCL_PATCH nccl.h)"
	fi
	echo "$text, $("${CC:-gcc}" --version | head -n 1)"
}
