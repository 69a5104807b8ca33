// A CUDA kernel as ordinary C++: one block after another, each of its threads a fiber.
//
// Fibers run one at a time from barrier to barrier, in an order that the caller chooses, so a
// missing barrier shows as another result in another order. Threads that end while others wait at
// a barrier are an error. No timing, no memory model, no bounds of global memory.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#define __global__
#define __device__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static  // one block at a time

using std::min;

struct dim3 { unsigned x, y, z; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };

namespace emulation {

enum State { ready, at_warp_barrier, at_block_barrier, ended };

struct Fiber {
    jmp_buf at;  // where it waits: unlike swapcontext, a jump asks nothing of the system
    std::vector<char> stack;
    State state;
    dim3 index;
};

static jmp_buf scheduler;
static std::vector<Fiber> fibers;
static Fiber *current;
static dim3 block, grid;
static float exchanged[1024];
static void (*body)();

static void wait(State state) {
    current->state = state;
    if (!_setjmp(current->at)) _longjmp(scheduler, 1);
}

// A fiber's life: the same thread of one block after another.
static void enter() {
    for (;;) {
        body();
        wait(ended);
    }
}

// A fiber with a stack of its own, before its first block.
static void begin(Fiber &fiber) {
    ucontext_t context, here;
    fiber.stack.resize(1 << 16);
    getcontext(&context);
    context.uc_stack.ss_sp = fiber.stack.data();
    context.uc_stack.ss_size = fiber.stack.size();
    context.uc_link = nullptr;
    makecontext(&context, [] { wait(ended); enter(); }, 0);
    current = &fiber;
    if (!_setjmp(scheduler)) swapcontext(&here, &context);
}

// Let a thread go on to its next barrier or its end.
static void resume(Fiber &fiber) {
    current = &fiber;
    if (!_setjmp(scheduler)) _longjmp(fiber.at, 1);
}

static int lane_of_block() { return static_cast<int>(current - fibers.data()); }

// What another thread of the warp gives for `value`; only whole warps shuffle here.
static float taken_from(unsigned mask, float value, int thread) {
    if (mask != 0xffffffffu) std::abort();
    exchanged[lane_of_block()] = value;
    wait(at_warp_barrier);
    const float other = exchanged[thread];
    wait(at_warp_barrier);
    return other;
}

// Let all threads of a block run to their ends. order: 0 ascending, 1 descending, else shuffled.
// False: some threads wait at a barrier that others never reach.
static bool run_block(int order) {
    const size_t threads = block.x * block.y * block.z;
    if (fibers.empty()) {
        fibers.resize(threads);
        for (Fiber &fiber : fibers) begin(fiber);
    }
    std::vector<size_t> turns(threads);
    for (size_t t = 0; t < threads; t++) {
        Fiber &fiber = fibers[t];
        fiber.state = ready;
        fiber.index = {unsigned(t % block.x), unsigned(t / block.x % block.y),
                       unsigned(t / block.x / block.y)};
        turns[t] = order == 1 ? threads - 1 - t : t;
    }
    unsigned seed = 12345u * unsigned(order) + 1;
    for (size_t t = threads; order > 1 && t > 1; t--) {
        seed = seed * 1664525u + 1013904223u;
        std::swap(turns[t - 1], turns[seed % t]);
    }
    for (;;) {
        for (size_t t : turns)
            if (fibers[t].state == ready) resume(fibers[t]);
        bool released = false;
        for (size_t first = 0; first < threads; first += 32) {
            const size_t last = std::min(first + 32, threads);
            size_t waiting = 0;
            for (size_t t = first; t < last; t++) waiting += fibers[t].state == at_warp_barrier;
            if (waiting == last - first) {
                for (size_t t = first; t < last; t++) fibers[t].state = ready;
                released = true;
            }
        }
        if (released) continue;
        size_t waiting = 0, over = 0;
        for (const Fiber &fiber : fibers) {
            waiting += fiber.state == at_block_barrier;
            over += fiber.state == ended;
        }
        if (over == threads) return true;
        if (waiting != threads) {
            fibers.clear();  // they are in the middle of this block
            return false;
        }
        for (Fiber &fiber : fibers) fiber.state = ready;
    }
}

}  // namespace emulation

#define threadIdx (emulation::current->index)
static dim3 blockIdx;

static inline void __syncthreads() { emulation::wait(emulation::at_block_barrier); }

template <typename T> static inline T __ldg(const T *at) { return *at; }
template <typename T> static inline T __ldcs(const T *at) { return *at; }
template <typename T> static inline void __stcs(T *at, T value) { *at = value; }
static inline float rsqrtf(float value) { return 1.0f / std::sqrt(value); }
static inline float atomicAdd(float *at, float value) {
    const float before = *at;
    *at += value;
    return before;
}

static inline float __shfl_down_sync(unsigned mask, float value, int distance, int width) {
    const int me = emulation::lane_of_block();
    return emulation::taken_from(mask, value, me % width + distance < width ? me + distance : me);
}

static inline float __shfl_xor_sync(unsigned mask, float value, int lane_mask) {
    return emulation::taken_from(mask, value, emulation::lane_of_block() ^ lane_mask);
}
