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
	for root in "${NCCL_HOME:-}" "${CUDNN_HOME:-}" "${CUDA_HOME:-}" "$on_path" /usr/local/cuda{,/extras/CUPTI} /usr \
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

# also VARIABLE NAME HEADER LIBRARY: what the engine can be without; absent says why then
also() {
	local place
	if find_header "$3" place && find_library "$4" "$1"; then
		includes+=(-isystem "$place")
	else
		absent+=("$2: $missing;")
	fi
}

# find_toolkit: fills nvcc, includes (flags), cudart, cudnn, cublaslt, nccl, cupti (paths). Returns 1, with a line
# in missing, where there is no compiler or no CUDA; the others may be empty.
find_toolkit() {
	local place root
	# shellcheck disable=SC2034 # they are build.bash's
	nvcc='' cudart='' cudnn='' cublaslt='' nccl='' cupti='' includes=() absent=()
	find_roots
	for root in "${roots[@]}"; do
		"$root/bin/nvcc" --version &>/dev/null || continue
		nvcc=$root/bin/nvcc
		# The headers of the compiler in use come first.
		roots=("$(dirname "$(dirname "$(realpath "$nvcc")")")" "${roots[@]}")
		break
	done
	find_library cudart cudart && find_header cuda_runtime_api.h place || return 1
	includes=(-isystem "$place")
	also cudnn cuDNN cudnn_graph.h cudnn
	also cublaslt cublasLt cublasLt.h cublasLt
	also nccl NCCL nccl.h nccl
	also cupti CUPTI cupti.h cupti
	missing="no nvcc on PATH, in CUDA_HOME, /usr/local/cuda or Python's packages"
	[[ -n $nvcc ]]
}

# header_number NAME HEADER: a number that a header of the toolkit has.
header_number() {
	echo "#include <$2>
		DDP_NUMBER $1" | "${CC:-gcc}" "${includes[@]}" -E -P - 2>/dev/null |
		sed -n 's/^ *DDP_NUMBER *//p'
}

# The releases that everything was built with, on one line.
describe_toolkit() {
	local text number
	text="CUDA $("${nvcc:-true}" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')"
	[[ -z $cudnn ]] || text+=", cuDNN $(header_number CUDNN_MAJOR cudnn_version.h).$(
		header_number CUDNN_MINOR cudnn_version.h)"
	[[ -z $cublaslt ]] || text+=", cublasLt $(header_number CUBLAS_VER_MAJOR cublas_api.h)"
	if [[ -n $nccl ]]; then
		number=$(header_number NCCL_MAJOR nccl.h)
		text+=", NCCL $number.$(header_number NCCL_MINOR nccl.h).$(header_number NCCL_PATCH nccl.h)"
	fi
	echo "$text, $("${CC:-gcc}" --version | head -n 1)"
}
