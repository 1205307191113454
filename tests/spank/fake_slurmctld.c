/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fake_slurmctld.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include "fake_slurmstepd.h"

struct fake_slurmctld fake_slurmctld;

unsigned fake_questions(void)
{
	return fake_slurmctld.asked.layout + fake_slurmctld.asked.steps +
	       fake_slurmctld.asked.node + fake_slurmctld.asked.nodes + fake_slurmctld.asked.job;
}

int fake_layout_next(const char **at, char *name, uint32_t *tasks)
{
	const char *p = *at + strspn(*at, " ");
	size_t n = strcspn(p, ":");
	int count = 0;

	if (!*p)
		return -1;
	memcpy(name, p, n);
	name[n] = '\0';
	for (p += n; *p == ':' || *p == ',';) {
		char *end;

		tasks[count++] = (uint32_t)strtoul(p + 1, &end, 10);
		p = end;
	}
	*at = p;
	return count;
}

static bool refuses(void)
{
	errno = SLURM_COMMUNICATIONS_CONNECTION_ERROR;
	return fake_slurmctld.down;
}

static char *text_or_null(const char *text)
{
	return text ? strdup(text) : NULL;
}

slurm_step_layout_t *slurm_job_step_layout_get(slurm_step_id_t *id)
{
	const char *at = fake_slurmctld.layout;
	slurm_step_layout_t *layout;
	char name[64], list[256] = "";
	uint32_t tasks[FAKE_LOCAL];
	int n;

	fake_slurmctld.asked.layout++;
	if (refuses() || !at || id->job_id != fake_slurmctld.job ||
	    id->step_id != fake_slurmctld.step)
		return NULL;
	layout = calloc(1, sizeof(*layout));
	layout->tasks = calloc(FAKE_NODES, sizeof(*layout->tasks));
	layout->tids = calloc(FAKE_NODES, sizeof(*layout->tids));
	while ((n = fake_layout_next(&at, name, tasks)) >= 0) {
		uint32_t i = layout->node_cnt++;

		sprintf(list + strlen(list), "%s%s", i ? "," : "", name);
		layout->tasks[i] = (uint16_t)n;
		layout->task_cnt += (uint32_t)n;
		/* To the byte, so that a reader beyond the end is seen. */
		layout->tids[i] = malloc((size_t)n * sizeof(**layout->tids));
		memcpy(layout->tids[i], tasks, (size_t)n * sizeof(**layout->tids));
	}
	layout->node_list = strdup(fake_slurmctld.layout_list ? fake_slurmctld.layout_list : list);
	fake_slurmctld.answers++;
	return layout;
}

void slurm_job_step_layout_free(slurm_step_layout_t *layout)
{
	for (uint32_t i = 0; i < layout->node_cnt; i++)
		free(layout->tids[i]);
	free(layout->tids);
	free(layout->tasks);
	free(layout->node_list);
	free(layout);
	fake_slurmctld.answers--;
}

static bool is_current(uint32_t job, uint32_t step)
{
	return job == fake_slurmctld.job && step == fake_slurmctld.step;
}

static bool lives(uint32_t job, uint32_t step)
{
	for (int i = 0; i < FAKE_LIVING; i++)
		if (fake_slurmctld.living[i].job == job && fake_slurmctld.living[i].step == step)
			return job != 0;
	return is_current(job, step);
}

static bool job_lives(uint32_t job)
{
	for (int i = 0; i < FAKE_LIVING; i++)
		if (job && fake_slurmctld.living[i].job == job)
			return true;
	return job == fake_slurmctld.job;
}

static int load_step(uint32_t job, uint32_t step, job_step_info_response_msg_t **answer)
{
	fake_slurmctld.asked.steps++;
	if (refuses())
		return SLURM_ERROR;
	if (!job_lives(job)) {
		errno = ESLURM_INVALID_JOB_ID;
		return SLURM_ERROR;
	}
	*answer = calloc(1, sizeof(**answer));
	fake_slurmctld.answers++;
	if (!lives(job, step))
		return SLURM_SUCCESS;
	(*answer)->job_step_count = 1;
	(*answer)->job_steps = calloc(1, sizeof(*(*answer)->job_steps));
	if (is_current(job, step))
		(*answer)->job_steps->resv_ports = text_or_null(fake_slurmctld.reserved_ports);

	return SLURM_SUCCESS;
}

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
int slurm_get_job_steps(slurm_step_id_t *id, job_step_info_response_msg_t **answer, uint16_t flags)
{
	(void)flags;
	return load_step(id->job_id, id->step_id, answer);
}
#else
int slurm_get_job_steps(time_t update, uint32_t job, uint32_t step,
			job_step_info_response_msg_t **answer, uint16_t flags)
{
	(void)update;
	(void)flags;
	return load_step(job, step, answer);
}
#endif

void slurm_free_job_step_info_response_msg(job_step_info_response_msg_t *answer)
{
	if (answer->job_steps)
		free(answer->job_steps->resv_ports);

	free(answer->job_steps);
	free(answer);
	fake_slurmctld.answers--;
}

static int load_nodes(const char *name, node_info_msg_t **answer)
{
	if (refuses())
		return SLURM_ERROR;
	*answer = calloc(1, sizeof(**answer));
	(*answer)->node_array = calloc(FAKE_NODES, sizeof(*(*answer)->node_array));
	for (int i = 0; i < FAKE_NODES; i++) {
		const struct fake_node_record *record = &fake_slurmctld.nodes[i];
		node_info_t *node = &(*answer)->node_array[(*answer)->record_count];

		if (!record->name || (name && strcmp(name, record->name) != 0))
			continue;
		node->name = strdup(record->name);
		node->node_addr = text_or_null(record->address);
		node->gres = text_or_null(record->gres);
		(*answer)->record_count++;
	}
	fake_slurmctld.answers++;
	return SLURM_SUCCESS;
}

int slurm_load_node_single(node_info_msg_t **answer, char *name, uint16_t flags)
{
	(void)flags;
	fake_slurmctld.asked.node++;
	return load_nodes(name, answer);
}

int slurm_load_node(time_t update, node_info_msg_t **answer, uint16_t flags)
{
	(void)update;
	(void)flags;
	fake_slurmctld.asked.nodes++;
	return load_nodes(NULL, answer);
}

void slurm_free_node_info_msg(node_info_msg_t *answer)
{
	for (uint32_t i = 0; i < answer->record_count; i++) {
		free(answer->node_array[i].name);
		free(answer->node_array[i].node_addr);
		free(answer->node_array[i].gres);
	}
	free(answer->node_array);
	free(answer);
	fake_slurmctld.answers--;
}

static int load_job(uint32_t job, job_info_msg_t **answer)
{
	slurm_job_info_t *info;

	fake_slurmctld.asked.job++;
	if (refuses() || job != fake_slurmctld.job)
		return SLURM_ERROR;
	info = calloc(1, sizeof(*info));
	info->end_time = fake_slurmctld.end;
	info->tres_per_node = text_or_null(fake_slurmctld.tres_per_node);
	*answer = calloc(1, sizeof(**answer));
	(*answer)->record_count = 1;
	(*answer)->job_array = info;
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
	info->step_id.job_id = job;
#else
	info->job_id = job;
#endif
	fake_slurmctld.answers++;
	return SLURM_SUCCESS;
}

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
int slurm_load_job(job_info_msg_t **answer, slurm_step_id_t id, uint16_t flags)
{
	(void)flags;
	return load_job(id.job_id, answer);
}
#else
int slurm_load_job(job_info_msg_t **answer, uint32_t job, uint16_t flags)
{
	(void)flags;
	return load_job(job, answer);
}
#endif

void slurm_free_job_info_msg(job_info_msg_t *answer)
{
	free(answer->job_array->tres_per_node);
	free(answer->job_array);
	free(answer);
	fake_slurmctld.answers--;
}
