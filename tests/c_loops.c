/* CartPole and the pendulum as plain loops, for what a C compiler makes of the same work.
 *
 * c_loops.py compiles and calls this. The draws are those of myriad/engine/random.py for the same
 * seed, and the sine is the polynomial of myriad/engine/vector_math.py, so that neither side has
 * cheaper ones. A block of environments stays in the first-level cache for a whole chunk of steps.
 */
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 64
/* Inlined, so that the compiler sees which environment it is and vectorises the loop over a block. */
#define INLINE static inline __attribute__((always_inline))
#define MIN(a, b) ((a) < (b) ? (a) : (b))

enum { CARTPOLE, PENDULUM };
enum { FIRST_RESET, ACT, STEP, RESET };

typedef struct { uint32_t first, second; } Key;

typedef struct {
    float state[4][BLOCK]; /* x, x_dot, theta, theta_dot, or theta, theta_dot */
    float episode_return[BLOCK], return_sum[BLOCK];
    int32_t episode_length[BLOCK], num_episodes[BLOCK];
} Block;

typedef struct {
    Block *blocks;
    Key key;
    uint64_t step;
    int64_t num_envs, chunk, num_threads;
    int32_t env;
} Run;

INLINE uint32_t mix(uint32_t x) {
    x = (x ^ x >> 16) * 0x21F0AAADu;
    x = (x ^ x >> 15) * 0xD35A2D97u;
    return x ^ x >> 15;
}

INLINE Key fold(Key key, uint32_t value) {
    uint32_t first = mix(key.first + value * 0x9E3779B9u);
    uint32_t added = first * 0x85EBCA6Bu;
    return (Key){first, key.second + (added > 1 ? added : 1)};
}

INLINE uint32_t draw(Key key, uint32_t index) {
    uint32_t x = key.first + index * 0x9E3779B9u;
    x = (x ^ x >> 16) * 0x21F0AAADu;
    x ^= key.second + index * 0x85EBCA6Bu;
    x = (x ^ x >> 15) * 0xD35A2D97u;
    return x ^ x >> 15;
}

INLINE float uniform(Key key, uint32_t index, float low, float high) {
    union { uint32_t bits; float value; } unit = {draw(key, index) >> 9 | 0x3F800000u};
    return (unit.value - 1.0f) * (high - low) + low;
}

INLINE void sin_cos(float x, float *sin, float *cos) {
    float quarters = rintf(x * 0.63661977f);
    float rest = x - quarters * 1.5703125f - quarters * 4.8375130e-4f - quarters * 7.5495336e-8f;
    int32_t quadrant = (int32_t)quarters;
    float square = rest * rest;
    float odd = -0.16666655f + square * (8.3321510e-3f + square * -1.9513522e-4f);
    float even = 0.041666646f + square * (-1.3887332e-3f + square * 2.4434214e-5f);
    odd = rest + rest * square * odd;
    even = 1.0f - 0.5f * square + square * square * even;
    float sine = quadrant & 1 ? even : odd, cosine = quadrant & 1 ? odd : even;
    *sin = quadrant & 2 ? -sine : sine;
    *cos = (quadrant + 1) & 2 ? -cosine : cosine;
}

INLINE int num_rows(int env) { return env == CARTPOLE ? 4 : 2; }

INLINE void reset(int env, Key key, float state[4]) {
    for (int i = 0; i < num_rows(env); i++) {
        float high = env == CARTPOLE ? 0.05f : i == 0 ? 3.14159265f : 1.0f;
        state[i] = uniform(key, i, -high, high);
    }
}

/* Advance one environment under a push of 0 or 1, or a torque. Return whether it terminated. */
INLINE int advance(int env, float action, float state[4], float *reward) {
    float sin, cos;
    if (env == CARTPOLE) {
        float force = action == 0.0f ? -10.0f : 10.0f;
        sin_cos(state[2], &sin, &cos);
        float push = (force + 0.05f * state[3] * state[3] * sin) * (1.0f / 1.1f);
        float inertia = 0.5f * (4.0f / 3.0f - 0.1f / 1.1f * cos * cos);
        float turning = (9.8f * sin - cos * push) / inertia;
        float moving = push - 0.05f / 1.1f * turning * cos;
        state[0] += 0.02f * state[1];
        state[1] += 0.02f * moving;
        state[2] += 0.02f * state[3];
        state[3] += 0.02f * turning;
        *reward = 1.0f;
        return (fabsf(state[0]) > 2.4f) | (fabsf(state[2]) > 0.20943951f);
    }
    float turns = rintf(state[0] * 0.15915494f);
    float angle = state[0] - turns * 6.28125f - turns * 1.9353072e-3f;
    *reward = -(angle * angle + 0.1f * state[1] * state[1] + 0.001f * action * action);
    sin_cos(state[0], &sin, &cos);
    float rate = state[1] + 0.05f * (15.0f * sin + 3.0f * action);
    state[1] = rate < -8.0f ? -8.0f : rate > 8.0f ? 8.0f : rate;
    state[0] += 0.05f * state[1];
    return 0;
}

INLINE void end_episode(int env, Block *b, int j, int done, Key key) {
    float first[4];
    reset(env, key, first);
    for (int i = 0; i < num_rows(env); i++) b->state[i][j] = done ? first[i] : b->state[i][j];
    b->return_sum[j] += done ? b->episode_return[j] : 0.0f;
    b->num_episodes[j] += done;
    b->episode_return[j] = done ? 0.0f : b->episode_return[j];
    b->episode_length[j] = done ? 0 : b->episode_length[j];
}

/* Run `num_steps` steps of the `n` environments from `env_index` on. */
INLINE void run_block(int env, const Run *run, int64_t env_index, int n, const Key (*keys)[2],
                      int num_steps) {
    Block *restrict b = &run->blocks[env_index / BLOCK];
    const int longest = env == CARTPOLE ? 500 : 200;
    /* No pendulum ends early. So all end in the same step, and no other step draws their resets. */
    const int together = env == PENDULUM;
    for (int t = 0; t < num_steps; t++) {
        Key act = keys[t][0], again = keys[t][1];
        for (int j = 0; j < n; j++) {
            Key key = fold(act, (uint32_t)env_index + j);
            float action =
                env == PENDULUM ? uniform(key, 0, -2.0f, 2.0f) : (float)(draw(key, 0) >> 31);
            float state[4], reward;
            for (int i = 0; i < num_rows(env); i++) state[i] = b->state[i][j];
            int terminated = advance(env, action, state, &reward);
            for (int i = 0; i < num_rows(env); i++) b->state[i][j] = state[i];
            b->episode_return[j] += reward;
            b->episode_length[j] += 1;
            int truncated = b->episode_length[j] >= longest;
            if (!together)
                end_episode(env, b, j, terminated | truncated, fold(again, (uint32_t)env_index + j));
        }
        if (together && b->episode_length[0] >= longest)
            for (int j = 0; j < n; j++)
                end_episode(env, b, j, 1, fold(again, (uint32_t)env_index + j));
    }
}

/* A loop of a known length is vectorised without a remainder. */
#define RUN(name, env)                                                                            \
    static void name(const Run *run, int64_t env_index, const Key (*keys)[2], int num_steps) {    \
        int n = (int)MIN(BLOCK, run->num_envs - env_index);                                       \
        if (n == BLOCK) run_block(env, run, env_index, BLOCK, keys, num_steps);                   \
        else run_block(env, run, env_index, n, keys, num_steps);                                  \
    }
RUN(run_cartpole, CARTPOLE)
RUN(run_pendulum, PENDULUM)

typedef struct { const Run *run; int64_t number, num_steps; pthread_t thread; } Share;

static void *run_share(void *argument) {
    static void (*const loops[])(const Run *, int64_t, const Key (*)[2], int) = {run_cartpole,
                                                                                 run_pendulum};
    const Share *share = argument;
    const Run *run = share->run;
    int64_t num_blocks = (run->num_envs + BLOCK - 1) / BLOCK;
    Key(*keys)[2] = malloc(run->chunk * sizeof *keys);
    for (int64_t start = 0; start < share->num_steps; start += run->chunk) {
        int num_steps = (int)MIN(run->chunk, share->num_steps - start);
        for (int t = 0; t < num_steps; t++) {
            uint64_t step = run->step + start + t;
            for (int i = 0; i < 2; i++) {
                Key of_purpose = fold(run->key, (uint32_t)(step >> 32) * 256 + (i ? RESET : ACT));
                keys[t][i] = fold(of_purpose, (uint32_t)step);
            }
        }
        for (int64_t i = num_blocks * share->number / run->num_threads;
             i < num_blocks * (share->number + 1) / run->num_threads; i++)
            loops[run->env](run, i * BLOCK, (const Key(*)[2])keys, num_steps);
    }
    free(keys);
    return NULL;
}

void run_steps(Run *run, int64_t num_steps) {
    Share shares[run->num_threads];
    for (int64_t i = 0; i < run->num_threads; i++) {
        shares[i] = (Share){.run = run, .number = i, .num_steps = num_steps};
        if (i + 1 == run->num_threads) run_share(&shares[i]); /* the last on this thread */
        else pthread_create(&shares[i].thread, NULL, run_share, &shares[i]);
    }
    for (int64_t i = 0; i + 1 < run->num_threads; i++) pthread_join(shares[i].thread, NULL);
    run->step += num_steps;
}

/* Begin a run with `num_threads` threads at most. It lives as long as the process. */
Run *begin(int32_t env, int64_t num_envs, int64_t chunk, int64_t num_threads, uint32_t seed) {
    int64_t num_blocks = (num_envs + BLOCK - 1) / BLOCK;
    uint32_t first = mix((seed + 0x9E3779B9u) ^ mix(0));
    Run *run = malloc(sizeof *run);
    *run = (Run){
        .blocks = aligned_alloc(64, num_blocks * sizeof(Block)), /* on whole lines of the cache */
        .key = {first, mix(mix(first + 0x85EBCA6Bu))},
        .num_envs = num_envs,
        .chunk = chunk,
        .num_threads = MIN(num_threads, num_blocks),
        .env = env,
    };
    memset(run->blocks, 0, num_blocks * sizeof(Block));
    Key key = fold(run->key, FIRST_RESET);
    for (int64_t i = 0; i < num_envs; i++) {
        float state[4];
        reset(env, fold(key, (uint32_t)i), state);
        for (int row = 0; row < num_rows(env); row++)
            run->blocks[i / BLOCK].state[row][i % BLOCK] = state[row];
    }
    return run;
}

int64_t num_episodes(const Run *run) {
    int64_t sum = 0;
    for (int64_t i = 0; i < run->num_envs; i++) sum += run->blocks[i / BLOCK].num_episodes[i % BLOCK];
    return sum;
}

double return_sum(const Run *run) {
    double sum = 0;
    for (int64_t i = 0; i < run->num_envs; i++) sum += run->blocks[i / BLOCK].return_sum[i % BLOCK];
    return sum;
}
