/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "slurmctl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>
#include <slurm/slurmdb.h>

#include "core/channel.h"
#include "core/devices.h"
#include "core/format.h"
#include "core/nodelist.h"

/*
 * These functions are weak symbols, so that a process without some of them can load the plugin:
 * slurmd, a test, or srun of a later release.
 */
#pragma weak slurm_job_step_layout_get
#pragma weak slurm_job_step_layout_free
#pragma weak slurm_get_job_steps
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

/* srun's copy of slurm.conf; no header declares it. These functions exist in 22.05 to 26.05. */
extern slurm_conf_t slurm_conf;
extern char *slurm_conf_get_address(const char *node);
extern int slurm_conf_check_addr(const char *node, bool *dynamic);
extern void slurm_xfree(void **memory);

const char *ddp_cluster_name(void)
{
	return &slurm_conf ? slurm_conf.cluster_name : NULL;
}

/*
 * Whether this srun was called for another cluster (-M), whose nodes and resources are not in
 * slurm.conf of this host.
 */
static bool is_other_cluster(void)
{
	return &working_cluster_rec && working_cluster_rec;
}

bool ddp_cluster_has_shards(void)
{
	return !&slurm_conf || is_other_cluster() || ddp_gres_has_shards(slurm_conf.gres_plugins);
}

/* SHOW_LOCAL avoids a query to a federation. */
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

/*
 * If more nodes than this are concerned, one message loads the records of all nodes of the cluster.
 */
enum { SINGLE_NODES_MAX = 4 };

/* A node of the step, with the keys by which nodes are sorted. */
struct node_place {
	unsigned component;
	uint32_t first; /* first rank of its component on the node */
	uint32_t id;
};

struct node_places {
	struct node_place *of; /* all nodes, in Slurm's order */
	uint32_t count;
};

static int compare_places(const void *one, const void *other)
{
	const struct node_place *a = one, *b = other;

	if (a->component != b->component)
		return a->component < b->component ? -1 : 1;
	if (a->first != b->first)
		return a->first < b->first ? -1 : 1;
	return a->id < b->id ? -1 : a->id > b->id;
}

static uint32_t first_task(const slurm_step_layout_t *layout, uint32_t i)
{
	uint32_t first = UINT32_MAX;

	for (uint32_t t = 0; t < layout->tasks[i]; t++)
		if (layout->tids[i][t] < first)
			first = layout->tids[i][t];
	return first;
}

/*
 * Append the nodes of one component to [places]. Unless [node] is NULL, write the name of task 0's
 * node to [node].
 * Returns 0 or -1.
 */
static int add_component(slurm_step_id_t id, unsigned component, struct node_places *places,
			 char *node, size_t size)
{
	slurm_step_layout_t *layout = slurm_job_step_layout_get(&id);
	struct node_place *more;
	int rv = node ? -1 : 0;

	if (!layout)
		return -1;
	more = realloc(places->of, (places->count + (size_t)layout->node_cnt) * sizeof(*more));
	if (!more)
		rv = -1;
	else
		places->of = more;
	for (uint32_t i = 0; more && i < layout->node_cnt; i++) {
		uint32_t first = first_task(layout, i);

		more[places->count] = (struct node_place){component, first, places->count};
		places->count++;
		if (node && first == 0)
			rv = ddp_nodelist_nth(layout->node_list, i, node, size);
	}
	slurm_job_step_layout_free(layout);
	return rv;
}

/* Whether [job] has a step numbered [step] that the srun with [pid] created. */
static bool has_step_of(uint32_t job, uint32_t step, uint32_t pid)
{
	job_step_info_response_msg_t *steps = NULL;
	bool found;

	if (load_step(job, step, &steps) != SLURM_SUCCESS)
		return false;
	found = steps->job_step_count > 0 && steps->job_steps[0].srun_pid == pid;
	slurm_free_job_step_info_response_msg(steps);
	return found;
}

enum { COMPONENTS_MAX = 128 };

/*
 * Add the later components of a step, up to the first that cannot be found. They belong to the
 * first component's job, or to the jobs with the next ids.
 */
static void add_later(uint32_t job, uint32_t step, unsigned components, uint32_t pid,
		      struct node_places *places)
{
	slurm_step_id_t id = step_id(job, step);
	uint32_t next = job;

	for (unsigned c = 1; c < components; c++) {
		id.step_het_comp = c;
		if (add_component(id, c, places, NULL, 0) == 0)
			continue;
		do
			next++;
		while (next - job < COMPONENTS_MAX && !has_step_of(next, step, pid));
		if (next - job == COMPONENTS_MAX ||
		    add_component(step_id(next, step), c, places, NULL, 0) < 0)
			return;
	}
}

static int print_order(const struct node_places *places, struct ddp_layout *layout)
{
	uint32_t *ids = calloc(places->count, sizeof(*ids));

	if (!ids)
		return -1;
	qsort(places->of, places->count, sizeof(*places->of), compare_places);
	for (uint32_t i = 0; i < places->count; i++)
		ids[i] = places->of[i].id;
	layout->order_cut =
		ddp_order_print(ids, places->count, layout->order, sizeof(layout->order)) < 0;
	for (uint32_t i = ids[0]; layout->order_cut && i > 0; i--)
		ids[i] = i - 1;
	if (layout->order_cut)
		(void)ddp_order_print(ids, ids[0] + 1, layout->order, sizeof(layout->order));
	free(ids);
	return 0;
}

int ddp_ask_layout(uint32_t job, uint32_t step, unsigned components, uint32_t pid,
		   struct ddp_layout *layout)
{
	slurm_step_id_t id = step_id(job, step);
	struct node_places places = {0};
	int rv = -1;

	if (!slurm_job_step_layout_get || !slurm_job_step_layout_free)
		return -1;
	/*
	 * Each component of a job has its own record. For a query without a component, slurmctld
	 * would merge these records.
	 */
	if (components > 1)
		id.step_het_comp = 0;
	rv = add_component(id, 0, &places, layout->node, sizeof(layout->node));
	if (rv < 0 && components > 1)
		rv = add_component(step_id(job, step), 0, &places, layout->node,
				   sizeof(layout->node));
	if (rv == 0) {
		add_later(job, step, components, pid, &places);
		rv = print_order(&places, layout);
	}
	free(places.of);
	return rv;
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

/*
 * Returns the job id of the first component of the heterogeneous job that contains [job]; 0: none.
 */
static uint32_t leader_of(uint32_t job)
{
	job_info_msg_t *jobs = NULL;
	uint32_t leader = 0;

	if (load_job(job, &jobs) < 0)
		return 0;
	for (uint32_t i = 0; i < jobs->record_count; i++)
		if (jobs->job_array[i].job_id == job)
			leader = jobs->job_array[i].het_job_id;
	slurm_free_job_info_msg(jobs);
	return leader;
}

uint32_t ddp_ask_first_job(uint32_t job, uint32_t step, uint32_t pid, uint32_t *leader)
{
	uint32_t first = leader_of(job);

	*leader = first > 0 && first < job ? first : job;
	for (uint32_t id = *leader; id < job; id++)
		if (has_step_of(id, step, pid))
			return id;
	return job;
}

static bool wants_shards(const slurm_job_info_t *info)
{
	return ddp_gres_has_shards(info->tres_per_node) ||
	       ddp_gres_has_shards(info->tres_per_job) ||
	       ddp_gres_has_shards(info->tres_per_socket) ||
	       ddp_gres_has_shards(info->tres_per_task) || ddp_gres_has_shards(info->gres_total);
}

int ddp_ask_job(uint32_t job, time_t *end, bool *shards)
{
	job_info_msg_t *jobs = NULL;
	int rv = -1;

	if (load_job(job, &jobs) < 0)
		return -1;
	for (uint32_t i = 0; i < jobs->record_count && rv < 0; i++) {
		const slurm_job_info_t *info = &jobs->job_array[i];

		if (info->job_id != job)
			continue;
		*end = info->end_time;
		*shards = wants_shards(info);
		rv = 0;
	}
	slurm_free_job_info_msg(jobs);
	return rv;
}

int ddp_ask_ports(uint32_t job, uint32_t step, char *ports, size_t size)
{
	job_step_info_response_msg_t *steps = NULL;
	int rv = -1;

	if (load_step(job, step, &steps) != SLURM_SUCCESS)
		return -1;
	if (steps->job_step_count > 0) {
		const char *list = steps->job_steps[0].resv_ports;

		rv = ddp_format(ports, size, "%s", list ? list : "");
	}
	slurm_free_job_step_info_response_msg(steps);
	return rv;
}

/*
 * Whether a step manager (since Slurm 24.05) keeps the records of [job]'s steps. If the step
 * manager does not answer, as for a suspended job, libslurm reports success and no steps. Returns
 * false if slurmctld does not know the job or the job has ended.
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
 * Get the address at which srun starts tasks on [node], from srun's own data: slurm.conf and, up to
 * 23.02, the step's addresses of nodes whose address changes (cloud and dynamic nodes). Later
 * releases mark such nodes and query slurmctld for their addresses.
 * Returns 0, or -1 if srun's data may lack the address.
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
 * Returns the shards per GPU of node [name] in [nodes]. The search starts after the previous match,
 * at [place], because the caller's list usually has the same order.
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

/*
 * Returns the shards per GPU of node [name], from [all] if the whole cluster was loaded, else from
 * a query.
 */
static uint32_t shards_of(const node_info_msg_t *all, const char *name, uint32_t *place)
{
	node_info_msg_t *one = NULL;
	uint32_t shards, first = 0;

	if (all)
		return shards_in(all, name, place);
	if (load_node(name, &one) < 0)
		return 0;
	shards = shards_in(one, name, &first);
	slurm_free_node_info_msg(one);
	return shards;
}

/*
 * Write "n1:8,n2:16", omitting nodes with an unknown number. Returns 0, or 1 with "" if the text
 * does not fit.
 */
static int print_shards(const char *nodes, const uint32_t *numbers, size_t count, char *list,
			size_t size)
{
	struct ddp_nodelist iterator;
	size_t used = 0;

	ddp_nodelist_begin(&iterator, nodes);
	for (size_t i = 0; i < count; i++) {
		char name[DDP_NODE_SIZE];

		if (ddp_nodelist_next(&iterator, name, sizeof(name)) < 0 ||
		    (numbers[i] && ddp_format(list + used, size - used, "%s%s:%u", used ? "," : "",
					      name, numbers[i]) < 0)) {
			list[0] = '\0';
			return 1;
		}
		used += strlen(list + used);
	}
	return 0;
}

int ddp_ask_shards(const char *nodes, char *shards, size_t size)
{
	long count = ddp_nodelist_count(nodes);
	node_info_msg_t *all = NULL;
	struct ddp_nodelist iterator;
	uint32_t *numbers, place = 0;
	bool all_equal = true;
	int rv = -1;

	shards[0] = '\0';
	numbers = count > 0 ? calloc((size_t)count, sizeof(*numbers)) : NULL;
	if (!numbers)
		return -1;
	if (count > SINGLE_NODES_MAX && (!slurm_load_node || !slurm_free_node_info_msg ||
					 slurm_load_node(0, &all, show) != SLURM_SUCCESS))
		goto out;
	ddp_nodelist_begin(&iterator, nodes);
	for (long i = 0; i < count; i++) {
		char name[DDP_NODE_SIZE];

		if (ddp_nodelist_next(&iterator, name, sizeof(name)) < 0)
			goto out;
		numbers[i] = shards_of(all, name, &place);
		all_equal = all_equal && numbers[i] == numbers[0];
	}
	if (!all_equal)
		rv = print_shards(nodes, numbers, (size_t)count, shards, size);
	else if (numbers[0])
		rv = ddp_format(shards, size, "%u", numbers[0]);
	else
		rv = 0;
out:
	if (all)
		slurm_free_node_info_msg(all);
	free(numbers);
	return rv;
}
