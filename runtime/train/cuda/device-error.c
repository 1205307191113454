/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What CUDA's errors mean for the person who can do something: the user, who builds, or who looks
 * after the node. Xid numbers are the driver's, in the kernel's log.
 */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>

#include "device-private.h"

#define DRAIN "drain the node, and reset or replace the card"
#define DEFECT "a defect of this program, or of the card if other programs fail there too"
#define MPS "ask whoever runs the MPS daemon of this node"

/* By number: the newer ones have no name in older toolkits. */
static const struct advice {
	int result;
	int status;
	const char *text;
} advices[] = {
	{cudaErrorMemoryAllocation, DDP_ERR_MEMORY,
	 "lower --batch, or take a GPU with more memory"},
	{cudaErrorInitializationError, DDP_ERR_ENGINE,
	 "the driver does not start; Xid 79 in the kernel's log: the card is off the bus, " DRAIN},
	{cudaErrorInsufficientDriver, DDP_ERR_UNSUPPORTED, "install a newer driver"},
	{cudaErrorDevicesUnavailable, DDP_ERR_ENGINE,
	 "another process has it, in an exclusive compute mode: nvidia-smi -q -d COMPUTE"},
	{cudaErrorNoDevice, DDP_ERR_UNSUPPORTED, "look at CUDA_VISIBLE_DEVICES and --gres"},
	{cudaErrorInvalidDevice, DDP_ERR_ARGUMENT, "look at CUDA_VISIBLE_DEVICES and --gres"},
	{127 /* StartupFailure */, DDP_ERR_ENGINE,
	 "the driver does not start: see the kernel's log"},
	{cudaErrorNoKernelImageForDevice, DDP_ERR_UNSUPPORTED,
	 "build with --enable-all-gpus, or with this GPU in NVCC_ARCH"},
	{cudaErrorECCUncorrectable, DDP_ERR_ENGINE,
	 "memory of the card is damaged (Xid 48, 63, 64, 94 or 95): " DRAIN},
	{cudaErrorDeviceAlreadyInUse, DDP_ERR_ENGINE,
	 "another process has it, in an exclusive compute mode: nvidia-smi -q -d COMPUTE"},
	{cudaErrorNvlinkUncorrectable, DDP_ERR_ENGINE, "a link is broken (Xid 74): " DRAIN},
	{cudaErrorJitCompilerNotFound, DDP_ERR_UNSUPPORTED,
	 "libnvidia-ptxjitcompiler is missing: build with this GPU in NVCC_ARCH, or install it"},
	{cudaErrorUnsupportedPtxVersion, DDP_ERR_UNSUPPORTED,
	 "the driver is older than nvcc: build with this GPU in NVCC_ARCH, or install a newer one"},
	{226 /* Contained */, DDP_ERR_ENGINE,
	 "memory of the card was damaged, no other process suffers (Xid 94): " DRAIN},
	{cudaErrorOperatingSystem, DDP_ERR_ENGINE, "see the kernel's log"},
	{cudaErrorIllegalAddress, DDP_ERR_ENGINE, "Xid 13 or 31: " DEFECT},
	{cudaErrorLaunchTimeout, DDP_ERR_ENGINE,
	 "Xid 8: the card serves a display, whose time limit ended a kernel"},
	{cudaErrorHardwareStackError, DDP_ERR_ENGINE, "Xid 13: " DEFECT},
	{cudaErrorIllegalInstruction, DDP_ERR_ENGINE, "Xid 13: " DEFECT},
	{cudaErrorMisalignedAddress, DDP_ERR_ENGINE, "Xid 13: " DEFECT},
	{cudaErrorInvalidAddressSpace, DDP_ERR_ENGINE, "Xid 13: " DEFECT},
	{cudaErrorInvalidPc, DDP_ERR_ENGINE, "Xid 13: " DEFECT},
	{cudaErrorLaunchFailure, DDP_ERR_ENGINE,
	 "see the kernel's log; Xid 13: " DEFECT "; Xid 48, 79, 94, 95 or 119: " DRAIN},
	{cudaErrorSystemNotReady, DDP_ERR_ENGINE,
	 "nvidia-fabricmanager or another service of the driver does not run on this node"},
	{cudaErrorSystemDriverMismatch, DDP_ERR_ENGINE,
	 "the driver was updated under a running kernel module: reboot the node"},
	{cudaErrorCompatNotSupportedOnDevice, DDP_ERR_UNSUPPORTED,
	 "this card takes no forward compatible driver library: install a newer driver"},
	{cudaErrorMpsConnectionFailed, DDP_ERR_ENGINE, MPS},
	{cudaErrorMpsRpcFailure, DDP_ERR_ENGINE, MPS},
	{cudaErrorMpsServerNotReady, DDP_ERR_ENGINE, MPS},
	{cudaErrorMpsMaxClientsReached, DDP_ERR_ENGINE, MPS},
	{cudaErrorMpsMaxConnectionsReached, DDP_ERR_ENGINE, MPS},
	{810 /* MpsClientTerminated */, DDP_ERR_ENGINE, "another process of the MPS daemon failed"},
	{cudaErrorUnknown, DDP_ERR_ENGINE, "see the kernel's log for Xid"},
};

static const struct advice *advice_for(cudaError_t result)
{
	static const struct advice none = {0, DDP_ERR_ENGINE, ""};

	for (size_t i = 0; i < sizeof(advices) / sizeof(advices[0]); i++) {
		if (advices[i].result == (int)result)
			return &advices[i];
	}
	return &none;
}

int device_info_error(const struct device_info *info, cudaError_t result, struct ddp_error *error,
		      const char *what)
{
	const struct advice *advice = advice_for(result);
	char name[sizeof(info->name) + 4] = "";

	if (result == cudaSuccess)
		return 0;
	(void)cudaGetLastError();
	if (*info->name)
		snprintf(name, sizeof(name), " (%s)", info->name);
	return ddp_error_set(error, advice->status, "GPU %d%s: %s: %s (%s, %d)%s%s", info->index,
			     name, what, cudaGetErrorString(result), cudaGetErrorName(result),
			     (int)result, *advice->text ? "; " : "", advice->text);
}

int device_error(const struct device *device, cudaError_t result, struct ddp_error *error,
		 const char *format, ...)
{
	char what[256];
	va_list arguments;

	if (result == cudaSuccess)
		return 0;
	va_start(arguments, format);
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	return device_info_error(&device->info, result, error, what);
}
