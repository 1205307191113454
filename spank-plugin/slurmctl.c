/* SPDX-License-Identifier: Apache-2.0 */
/* slurmctl.c - requests to slurmctld through functions of libslurm */
#include "config.h"

#include "slurmctl.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>
#include <slurm/slurmdb.h>

#include "launch/channel.h"
#include "launch/devices.h"
#include "launch/format.h"
#include "launch/nodelist.h"

/*
 * These symbols are weak, so that the plugin can be loaded by a process without some of them:
 * slurmd, a test, or srun of a later release.
 */
#pragma weak slurm_job_step_layout_get
#pragma weak slurm_job_step_layout_free
#pragma weak slurm_get_job_steps
#pragma weak slurm_kill_job_step
#pragma weak slurm_strerror
#pragma weak slurm_free_job_step_info_response_msg
#pragma weak slurm_load_node
#pragma weak slurm_load_node_single
#pragma weak slurm_free_node_info_msg
#pragma weak slurm_load_job
#pragma weak slurm_free_job_info_msg
#pragma weak slurm_conf
#pragma weak slurm_conf_get_address
#pragma weak slurm_conf_check_addr
#pragma weak slurm_xfree
#pragma weak working_cluster_rec

/*
 * srun has these functions and a copy of slurm.conf (22.05 to 26.05), but no header declares them.
 */
extern slurm_conf_t slurm_conf;
extern char *slurm_conf_get_address(const char *node);
extern int slurm_conf_check_addr(const char *node, bool *dynamic);
extern void slurm_xfree(void **memory);

const char *ddp_cluster_name(void)
{
	return &slurm_conf ? slurm_conf.cluster_name : NULL;
}

/*
 * Whether this srun was called for another cluster (-M). slurm.conf of this host does not describe
 * the nodes and resources of that cluster.
 */
static bool is_other_cluster(void)
{
	return &working_cluster_rec && working_cluster_rec;
}

bool ddp_cluster_has_shards(void)
{
	return !&slurm_conf || is_other_cluster() || ddp_gres_has_shards(slurm_conf.gres_plugins);
}

/* SHOW_LOCAL avoids queries to other clusters of a federation. */
static const uint16_t show = SHOW_ALL | SHOW_LOCAL;

static slurm_step_id_t step_id(uint32_t job, uint32_t step)
{
#ifdef SLURM_STEP_ID_INITIALIZER
	slurm_step_id_t id = SLURM_STEP_ID_INITIALIZER;
#else
	slurm_step_id_t id = {.step_het_comp = NO_VAL};
#endif

	id.job_id = job;
	id.step_id = step;
	return id;
}

/*
 * Load one step's record. If slurmctld does not have it, the list is empty or an error is returned.
 */
static int load_step(uint32_t job, uint32_t step, job_step_info_response_msg_t **steps)
{
	if (!slurm_get_job_steps || !slurm_free_job_step_info_response_msg)
		return SLURM_ERROR;
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
	slurm_step_id_t id = step_id(job, step);

	return slurm_get_job_steps(&id, steps, show);
#else
	return slurm_get_job_steps(0, job, step, steps, show);
#endif
}

/* Returns the index of the node on which task 0 runs, or -1. */
static int64_t find_task0(const slurm_step_layout_t *layout)
{
	for (uint32_t i = 0; i < layout->node_cnt; i++)
		for (uint32_t t = 0; t < layout->tasks[i]; t++)
			if (layout->tids[i][t] == 0)
				return i;
	return -1;
}

int ddp_ask_first_node(uint32_t job, uint32_t step, char *node, size_t size, uint32_t *id)
{
	slurm_step_id_t query = step_id(job, step);
	slurm_step_layout_t *layout;
	int64_t index;

	if (!slurm_job_step_layout_get || !slurm_job_step_layout_free)
		return -1;
	layout = slurm_job_step_layout_get(&query);
	if (!layout)
		return -1;
	index = find_task0(layout);
	if (index >= 0 && ddp_nodelist_nth(layout->node_list, (size_t)index, node, size) < 0)
		index = -1;
	slurm_job_step_layout_free(layout);
	*id = (uint32_t)index;
	return index < 0 ? -1 : 0;
}

static int load_job(uint32_t job, job_info_msg_t **jobs)
{
	if (!slurm_load_job || !slurm_free_job_info_msg)
		return -1;
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
	return slurm_load_job(jobs, step_id(job, NO_VAL), show) == SLURM_SUCCESS ? 0 : -1;
#else
	return slurm_load_job(jobs, job, show) == SLURM_SUCCESS ? 0 : -1;
#endif
}

static bool wants_shards(const slurm_job_info_t *info)
{
	return ddp_gres_has_shards(info->tres_per_node) ||
	       ddp_gres_has_shards(info->tres_per_job) ||
	       ddp_gres_has_shards(info->tres_per_socket) ||
	       ddp_gres_has_shards(info->tres_per_task) || ddp_gres_has_shards(info->gres_total);
}

int ddp_ask_job(uint32_t job, struct ddp_job *found)
{
	job_info_msg_t *jobs = NULL;
	int rv = -1;

	if (load_job(job, &jobs) < 0)
		return -1;
	for (uint32_t i = 0; i < jobs->record_count && rv < 0; i++) {
		const slurm_job_info_t *info = &jobs->job_array[i];

		if (info->job_id != job)
			continue;
		*found = (struct ddp_job){
			.end = info->end_time,
			.restarts = info->restart_cnt,
			.has_shards = wants_shards(info),
		};
		rv = 0;
	}
	slurm_free_job_info_msg(jobs);
	return rv;
}

/*
 * Returns whether a step manager (since Slurm 24.05) keeps the records of [job]'s steps. Returns
 * false if slurmctld does not know the job, or if the job has ended. In a job with a step manager,
 * an empty list of steps does not show that a step has ended: if the step manager does not answer,
 * as in a suspended job, libslurm reports success and no steps.
 */
static bool has_step_manager(uint32_t job)
{
	bool found = false;
#ifdef STEPMGR_ENABLED
	job_info_msg_t *jobs = NULL;

	errno = 0;
	if (load_job(job, &jobs) < 0)
		return errno != ESLURM_INVALID_JOB_ID;
	for (uint32_t i = 0; i < jobs->record_count; i++)
		if (jobs->job_array[i].job_id == job)
			found = (jobs->job_array[i].bitflags & STEPMGR_ENABLED) &&
				(jobs->job_array[i].job_state & JOB_STATE_BASE) < JOB_COMPLETE;
	slurm_free_job_info_msg(jobs);
#else
	(void)job;
#endif
	return found;
}

bool ddp_ask_step_ended(uint32_t job, uint32_t step)
{
	job_step_info_response_msg_t *steps = NULL;
	bool ended;

	errno = 0;
	if (load_step(job, step, &steps) != SLURM_SUCCESS)
		return errno == ESLURM_INVALID_JOB_ID;
	ended = steps->job_step_count == 0;
	slurm_free_job_step_info_response_msg(steps);
	return ended && !has_step_manager(job);
}

static int load_node(const char *name, node_info_msg_t **nodes)
{
	char copy[DDP_NODE_SIZE];

	if (!slurm_load_node_single || !slurm_free_node_info_msg ||
	    ddp_format(copy, sizeof(copy), "%s", name) < 0)
		return -1;
	return slurm_load_node_single(nodes, copy, show) == SLURM_SUCCESS ? 0 : -1;
}

static int print_address(const char *node, const char *found, char *address, size_t size)
{
	return ddp_format(address, size, "%s", strcmp(found, node) != 0 ? found : "");
}

/*
 * Get the address at which srun starts tasks on [node], if srun has it without a query. From
 * slurm.conf, srun has the addresses that do not change. The addresses of cloud and dynamic nodes
 * can change: srun up to 23.02 has them from the step, and later releases query slurmctld.
 * Returns 0, or -1 if srun may not have the address.
 */
static int known_address(const char *node, char *address, size_t size)
{
	char *found;
	int rv;

	if (!slurm_conf_get_address || !slurm_xfree || is_other_cluster())
		return -1;
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
	bool changes = true;

	if (!slurm_conf_check_addr || slurm_conf_check_addr(node, &changes) != SLURM_SUCCESS ||
	    changes)
		return -1;
#endif
	found = slurm_conf_get_address(node);
	if (!found)
		return -1;
	rv = print_address(node, found, address, size);
	slurm_xfree((void **)&found);
	return rv;
}

int ddp_ask_address(const char *node, char *address, size_t size)
{
	node_info_msg_t *nodes = NULL;
	int rv = known_address(node, address, size);

	if (rv == 0 || load_node(node, &nodes) < 0)
		return rv;
	for (uint32_t i = 0; i < nodes->record_count && rv < 0; i++) {
		const node_info_t *info = &nodes->node_array[i];

		if (info->name && info->node_addr && strcmp(info->name, node) == 0)
			rv = print_address(node, info->node_addr, address, size);
	}
	slurm_free_node_info_msg(nodes);
	return rv;
}

/*
 * Returns the number of shards per GPU of node [name] in [nodes]. The search starts at index
 * [place], after the previous match, because the caller usually asks for the nodes in this order.
 */
static uint32_t shards_in(const node_info_msg_t *nodes, const char *name, uint32_t *place)
{
	for (uint32_t i = 0; i < nodes->record_count; i++) {
		const node_info_t *info = &nodes->node_array[*place];

		*place = *place + 1 < nodes->record_count ? *place + 1 : 0;
		if (info->name && strcmp(info->name, name) == 0)
			return ddp_gres_shards_per_gpu(info->gres);
	}
	return 0;
}

int ddp_ask_shards(const char *list, uint32_t *shards)
{
	long count = ddp_nodelist_count(list);
	node_info_msg_t *nodes = NULL;
	struct ddp_nodelist iterator;
	char name[DDP_NODE_SIZE];
	uint32_t place = 0;
	int rv = 0;

	*shards = 0;
	ddp_nodelist_begin(&iterator, list);
	if (count < 1 || ddp_nodelist_next(&iterator, name, sizeof(name)) < 0)
		return -1;
	/* For several nodes, load the records of all nodes of the cluster, which is one message. */
	if (count == 1 ? load_node(name, &nodes) < 0
		       : !slurm_load_node || !slurm_free_node_info_msg ||
				 slurm_load_node(0, &nodes, show) != SLURM_SUCCESS)
		return -1;
	*shards = shards_in(nodes, name, &place);
	while (rv == 0 && ddp_nodelist_next(&iterator, name, sizeof(name)) == 0)
		rv = shards_in(nodes, name, &place) != *shards;
	if (rv > 0)
		*shards = 0;
	slurm_free_node_info_msg(nodes);
	return rv;
}

/* --- The end of a step --------------------------------------------------------------------- */

static int kill_step(uint32_t job, uint32_t step)
{
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
	slurm_step_id_t id = step_id(job, step);

	return slurm_kill_job_step(&id, SIGKILL, 0);
#elif SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
	return slurm_kill_job_step(job, step, SIGKILL, 0);
#else
	return slurm_kill_job_step(job, step, SIGKILL);
#endif
}

int ddp_end_step(uint32_t job, uint32_t step, struct ddp_message *message)
{
	if (!slurm_kill_job_step)
		return ddp_fail(message, "slurmstepd has no slurm_kill_job_step()");
	errno = 0;
	if (kill_step(job, step) == SLURM_SUCCESS || errno == ESLURM_ALREADY_DONE ||
	    errno == ESLURM_INVALID_JOB_ID || errno == ESLURM_TRANSITION_STATE_NO_UPDATE)
		return 0;
	return ddp_fail(message, "%s", slurm_strerror ? slurm_strerror(errno) : strerror(errno));
}
