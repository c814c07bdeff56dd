// How the threads of a pool compute a graph: step by step, each step in parts, any part by any thread.
//
// A step is a node of the graph, or one of the two stages of a product (its input is quantised, then
// rows are multiplied). It has as many parts as the graph has threads; part i is what ggml calls
// thread i of n, so which thread computes it changes no bit. A thread takes the part that bears its
// own number first, then any that nobody has begun. The thread that ends the last part publishes the next
// step. There is no barrier: a thread that lost its processor between two parts holds up nobody, and
// joins the step that is current when it runs again. A small node is computed by the thread that would
// publish it, since sharing takes longer. A node with barriers inside (TEAM_TOGETHER) needs a thread for
// each part: no thread takes another's.
//
// A part may wait for another part of its step, if that one has the lower number (a layer's pages are
// announced by part 0, src/step/cpu/attention_nodes.cc): the thread of that number takes it before any other.
//
// Invariants: (1) The word `step` holds the step's number, which only grows, and the number of its
// parts. (2) A part is claimed by raising its slot to the step's number, which one thread can do. (3) A
// step is over when all of its parts are done, all slots raised: so nobody claims a part of a step that
// is over, and between a claim and the end of its part the step, the graph and `at` stay as they are.
// (4) `at` belongs to the thread that publishes, one at a time; while a step is computed nobody
// writes it but for `fused`, which part 0 does.
#ifndef EBB_THREAD_TEAM_H
#define EBB_THREAD_TEAM_H

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "threads sleep on the low half of a word, which is its first half on little-endian processors"
#endif

// How long a thread looks for the next graph before it sleeps, for each level of the pool's polling.
#define TEAM_LOOK_NS_PER_POLL 200000
// How often a thread reads `step` before it takes the part of another, which may be about to: 1 us.
#define TEAM_LOOKS_BEFORE_TAKING (GIVE_WAY_LOOKS / 2)
// A node of at most so many elements is computed by one thread.
#define TEAM_SMALL 4096

// step: its number (bits 0-46), TEAM_OWN_PARTS, its parts (bits 48-62; none: there is nothing to take),
// TEAM_END: the graph is computed.
#define TEAM_NUMBER(step)  ((step) & ((1ULL << 47) - 1))
#define TEAM_OWN_PARTS     (1ULL << 47)
#define TEAM_PARTS(step)   ((int) ((step) >> 48 & 0x7fff))
#define TEAM_END           (1ULL << 63)

struct team_slot {
    GGML_CACHE_ALIGN atomic_ullong claimed;  // number of the last step whose part was claimed here
};

struct ggml_thread_team {
    GGML_CACHE_ALIGN atomic_ullong step;
    GGML_CACHE_ALIGN atomic_int parts_done;
    GGML_CACHE_ALIGN atomic_ullong asleep;  // number of the last step that a thread may sleep on
    struct give_way_word graphs;            // begun so far; raised too when the pool stops
    atomic_int n_threads;                   // of the last graph
    GGML_CACHE_ALIGN struct {
        unsigned long long number;         // of the last step
        int node;                          // its node
        int stage;
        int fused;                         // nodes behind it that are computed with it
    } at;
    struct team_slot slots[];              // [threads of the pool]
};

enum team_way { TEAM_ALONE, TEAM_PARTS_OF_ANY, TEAM_STAGES, TEAM_TOGETHER };

// Raises a word to a number; false: it was there already, or further.
static bool team_raise_to(atomic_ullong * word, unsigned long long number, memory_order order) {
    unsigned long long had = atomic_load_explicit(word, memory_order_relaxed);
    while (had < number) {
        if (atomic_compare_exchange_weak_explicit(word, &had, number, order, memory_order_relaxed)) { return true; }
    }
    return false;
}

static bool team_is_small(const struct ggml_tensor * tensor) { return ggml_nelements(tensor) <= TEAM_SMALL; }

static enum team_way team_way_of_product(const struct ggml_tensor * node) {
    if (ggml_get_op_params_i32(node, 1) == GGML_HINT_SRC0_IS_HADAMARD) { return TEAM_TOGETHER; }
    // Several planes of several columns may be one product after another, with barriers between.
    const struct ggml_tensor * src1 = node->src[1];
    const bool planes = src1->ne[2] * src1->ne[3] > 1 && src1->ne[1] > 1;
    return planes ? TEAM_TOGETHER : TEAM_STAGES;
}

// An operation that is not listed may have barriers inside, and so may what an extra buffer type does.
static enum team_way team_way(const struct ggml_tensor * node) {
    const int stages = ggml_cpu_extra_has_stages(node);
    if (stages >= 0) { return stages == 1 ? TEAM_STAGES : TEAM_TOGETHER; }
    switch (node->op) {
        case GGML_OP_MUL_MAT:
            return team_way_of_product(node);
        case GGML_OP_CUSTOM:
            return TEAM_PARTS_OF_ANY;
        case GGML_OP_ADD:
        case GGML_OP_CONT:
        case GGML_OP_CPY:
        case GGML_OP_DUP:
        case GGML_OP_GET_ROWS:
        case GGML_OP_GLU:
        case GGML_OP_MUL:
        case GGML_OP_RMS_NORM:
        case GGML_OP_ROPE:
        case GGML_OP_SCALE:
        case GGML_OP_SOFT_MAX:
        case GGML_OP_UNARY:
            return team_is_small(node) ? TEAM_ALONE : TEAM_PARTS_OF_ANY;
        default:
            return TEAM_TOGETHER;
    }
}

static bool team_quantises_input(const struct ggml_tensor * product) {
    return ggml_cpu_extra_has_stages(product) == 1 ||
           product->src[1]->type != type_traits_cpu[product->src[0]->type].vec_dot_type;
}

static void team_compute_part(struct ggml_threadpool * tp, int part, int parts) {
    struct ggml_thread_team * team = tp->team;
    struct ggml_compute_params params = {
        /*.ith        =*/ part,
        /*.nth        =*/ parts,
        /*.wsize      =*/ tp->cplan->work_size,
        /*.wdata      =*/ tp->cplan->work_data,
        /*.threadpool =*/ tp,
        /*.use_ref    =*/ tp->cplan->use_ref,
        /*.stage      =*/ team->at.stage,
    };
    const int fused = ggml_cpu_try_fuse_ops(tp->cgraph, team->at.node, &params, tp->cplan);
    if (fused == 0) { ggml_compute_forward(&params, tp->cgraph->nodes[team->at.node]); }
    if (part == 0) { team->at.fused = fused; }
}

static void team_set_step(struct ggml_thread_team * team, unsigned long long parts_and_kind) {
    team->at.number++;
    atomic_store_explicit(&team->parts_done, 0, memory_order_relaxed);
    const unsigned long long number = team->at.number;
    // From here on `at` is another's, unless there are no parts.
    atomic_store_explicit(&team->step, parts_and_kind | number, memory_order_seq_cst);
    // The thread that published the step before wakes who sleeps on an older one.
    if (atomic_load_explicit(&team->asleep, memory_order_seq_cst) + 1 >= number) { give_way_wake(&team->step); }
}

static void team_publish(struct ggml_threadpool * tp, bool own_parts) {
    const unsigned long long n_threads = atomic_load_explicit(&tp->team->n_threads, memory_order_relaxed);
    // Part i of a product begins with chunk i.
    ggml_threadpool_chunk_set(tp, (int) n_threads);
    team_set_step(tp->team, n_threads << 48 | (own_parts ? TEAM_OWN_PARTS : 0));
}

// The node from `node` on that is to be computed next; n_nodes: none.
static int team_next_node(const struct ggml_cgraph * graph, int node) {
    while (node < graph->n_nodes && (ggml_op_is_empty(graph->nodes[node]->op) ||
                                     (graph->nodes[node]->flags & GGML_TENSOR_FLAG_COMPUTE) == 0)) {
        node++;
    }
    return node;
}

// Publishes the node's first step, or computes the node. Whether it was computed.
static bool team_begin_node(struct ggml_threadpool * tp) {
    struct ggml_thread_team * team = tp->team;
    const struct ggml_tensor * node = tp->cgraph->nodes[team->at.node];
    team->at.stage = GGML_STAGE_ALL;
    switch (team_way(node)) {
        case TEAM_ALONE:
            team_compute_part(tp, 0, 1);
            return true;
        case TEAM_PARTS_OF_ANY:
            team_publish(tp, false);
            return false;
        case TEAM_TOGETHER:
            team_publish(tp, true);
            return false;
        case TEAM_STAGES:
            break;
    }
    team->at.stage = GGML_STAGE_PREPARE;
    if (team_quantises_input(node)) {
        if (!team_is_small(node->src[1])) {
            team_publish(tp, false);
            return false;
        }
        team_compute_part(tp, 0, 1);
    }
    team->at.stage = GGML_STAGE_REST;
    team_publish(tp, false);
    return false;
}

// Asks the abort callback, when a node is computed.
static bool team_is_to_go_on(struct ggml_threadpool * tp) {
    if (tp->cplan->abort_callback == NULL || !tp->cplan->abort_callback(tp->cplan->abort_callback_data)) {
        return true;
    }
    tp->ec = GGML_STATUS_ABORTED;
    return false;
}

// From the node that `at` tells on: computes what is small, publishes the next step, or the graph's end.
static void team_begin_from(struct ggml_threadpool * tp) {
    struct ggml_thread_team * team = tp->team;
    while ((team->at.node = team_next_node(tp->cgraph, team->at.node)) < tp->cgraph->n_nodes) {
        if (!team_begin_node(tp)) { return; }
        if (!team_is_to_go_on(tp)) { break; }
        team->at.node += 1 + team->at.fused;
    }
    team_set_step(team, TEAM_END);
}

// All parts of a step are done.
static void team_end_step(struct ggml_threadpool * tp) {
    struct ggml_thread_team * team = tp->team;
    if (team->at.stage == GGML_STAGE_PREPARE) {
        team->at.stage = GGML_STAGE_REST;
        team_publish(tp, false);
        return;
    }
    if (team_is_to_go_on(tp)) {
        team->at.node += 1 + team->at.fused;
    } else {
        team->at.node = tp->cgraph->n_nodes;
    }
    team_begin_from(tp);
}

// A part of the step that nobody has begun, of `how_many` from part `first` on; -1: there is none.
static int team_claim(struct ggml_thread_team * team, unsigned long long step, int first, int how_many) {
    for (int i = 0; i < how_many; ++i) {
        const int part = (first + i) % TEAM_PARTS(step);
        if (team_raise_to(&team->slots[part].claimed, TEAM_NUMBER(step), memory_order_acq_rel)) { return part; }
    }
    return -1;
}

static bool team_look(struct ggml_thread_team * team, unsigned long long step, int times) {
    for (int i = 0; i < times; ++i) {
        if (atomic_load_explicit(&team->step, memory_order_acquire) != step) { return true; }
        ggml_thread_cpu_relax();
    }
    return false;
}

// Waits for another step than this one.
static void team_wait(struct ggml_thread_team * team, unsigned long long step) {
    int64_t end = 0;
    while (!team_look(team, step, GIVE_WAY_LOOKS)) {
        const int64_t now = give_way_now_ns();
        if (end == 0) { end = now + GIVE_WAY_LOOK_NS; }
        if (now < end) { continue; }
        team_raise_to(&team->asleep, TEAM_NUMBER(step), memory_order_seq_cst);
        give_way_sleep(&team->step, (uint32_t) step);
    }
}

// Helps with the graph until it is computed, unless its steps have no part of this thread's number.
static void team_help(struct ggml_threadpool * tp, int thread) {
    struct ggml_thread_team * team = tp->team;
    bool took_others = false;  // in the last step: then their threads are away
    while (true) {
        const unsigned long long step = atomic_load_explicit(&team->step, memory_order_acquire);
        if ((step & TEAM_END) || thread >= atomic_load_explicit(&team->n_threads, memory_order_relaxed)) { return; }
        const int parts = TEAM_PARTS(step);
        int part = thread < parts ? team_claim(team, step, thread, 1) : -1;
        if (part < 0 && thread < parts && !(step & TEAM_OWN_PARTS)) {
            if (!took_others && team_look(team, step, TEAM_LOOKS_BEFORE_TAKING)) { continue; }
            part = team_claim(team, step, thread + 1, parts - 1);
            took_others = part >= 0;
        }
        if (part < 0) {
            team_wait(team, step);
            continue;
        }
        team_compute_part(tp, part, parts);
        if (atomic_fetch_add_explicit(&team->parts_done, 1, memory_order_acq_rel) + 1 == parts) {
            team_end_step(tp);
        }
    }
}

static void team_compute_graph(struct ggml_threadpool * tp, int n_threads) {
    struct ggml_thread_team * team = tp->team;
    if (tp->pause) {
        ggml_thread_apply_priority(tp->prio);
        if (ggml_thread_cpumask_is_valid(tp->workers[0].cpumask)) {
            ggml_thread_apply_affinity(tp->workers[0].cpumask);
        }
        tp->pause = false;
    }
    atomic_store_explicit(&tp->n_graph, n_threads, memory_order_relaxed);  // ggml_barrier() reads it
    atomic_store_explicit(&team->n_threads, n_threads, memory_order_relaxed);
    team->at.node = 0;
    team_set_step(team, 0);
    give_way_raise(&team->graphs);
    team_begin_from(tp);
    team_help(tp, 0);
}

static thread_ret_t team_thread(void * data) {
    struct ggml_compute_state * state = data;
    struct ggml_threadpool * tp = state->threadpool;
    ggml_thread_apply_priority(tp->prio);
    if (ggml_thread_cpumask_is_valid(state->cpumask)) { ggml_thread_apply_affinity(state->cpumask); }
    set_numa_thread_affinity(state->ith);
    while (true) {
        const int graphs = atomic_load_explicit(&tp->team->graphs.value, memory_order_seq_cst);
        if (tp->stop) { return 0; }
        team_help(tp, state->ith);
        const int64_t look_ns = tp->pause ? 0 : (int64_t) tp->poll * TEAM_LOOK_NS_PER_POLL;
        give_way_wait(&tp->team->graphs, graphs, look_ns);
    }
}

static size_t team_bytes(int n_threads) {
    return sizeof(struct ggml_thread_team) + n_threads * sizeof(struct team_slot);
}

static struct ggml_thread_team * team_new(int n_threads) {
    struct ggml_thread_team * team = ggml_aligned_malloc(team_bytes(n_threads));
    memset(team, 0, team_bytes(n_threads));
    team->step = TEAM_END;
    return team;
}

// The threads of the pool end. REQUIRES: its `stop` is set.
static void team_stop(struct ggml_thread_team * team) { give_way_raise(&team->graphs); }

static void team_free(struct ggml_thread_team * team, int n_threads) {
    ggml_aligned_free(team, team_bytes(n_threads));
}

#endif  // EBB_THREAD_TEAM_H
