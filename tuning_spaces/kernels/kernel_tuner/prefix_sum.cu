// Inclusive prefix sums of each row of a float32 matrix with `columns` columns.
//
// block_size_x threads share a row; block_size_y such groups work side by side on other rows. A
// group walks along its row in tiles of items_per_thread items a thread: each thread adds up its
// own runs of neighbouring items, the group finds what comes before each run, and the last tile's
// end carries over to the next one. Sizes are multiples of what a block takes: no bounds are
// checked. prefix_sum.py documents the parameters, which Kernel Tuner defines as macros.

enum Arrangement { blocked, striped, transposed };
enum Scan { by_shuffles, by_raking, by_doubling };

constexpr int kThreads = block_size_x * block_size_y;
constexpr int kWarps = block_size_x / 32;  // that share a row
constexpr bool kTransposed = arrangement == transposed;
constexpr int kVectors = items_per_thread / vector;  // of a tile, for one thread
constexpr int kTileVectors = kVectors * block_size_x;
constexpr int kRuns = arrangement == striped ? kVectors : 1;
constexpr int kRunItems = items_per_thread / kRuns;

// Shared memory of a group: its tile where that is transposed, and sums of runs.
constexpr int kHeldVectors = kTransposed ? kTileVectors + padding * block_size_x : 1;
constexpr int kSums = kRuns * block_size_x;
constexpr int kShare = kSums / 32;  // sums for one lane of the warp that rakes
constexpr int kWarpSums = kRuns * kWarps;
constexpr int kHeldSums = scan == by_shuffles ? 2 * kWarpSums
                          : scan == by_raking ? kSums + padding * 32
                                              : 2 * kSums;

template <int width> struct Vector;
template <> struct Vector<1> { typedef float type; };
template <> struct Vector<4> { typedef float4 type; };
typedef Vector<vector>::type Packed;

union Lanes {
    Packed packed;
    float lane[vector];
};

struct Shared {
    Packed tile[kHeldVectors];
    float sums[kHeldSums];
};

// Of this thread's vectors, the i-th one's place in a tile: with its neighbours side by side, or
// where the threads of a warp read and write side by side.
__device__ __forceinline__ int by_thread(int i) { return threadIdx.x * kVectors + i; }
__device__ __forceinline__ int by_warp(int i) { return i * block_size_x + threadIdx.x; }

__device__ __forceinline__ int in_memory(int i) {
    return arrangement == blocked ? by_thread(i) : by_warp(i);
}

// Places in shared memory, where a gap may follow the vectors of a thread, the share of a lane.
__device__ __forceinline__ int spaced(int at) { return at + padding * (at / kVectors); }
__device__ __forceinline__ int raked(int at) { return at + padding * (at / kShare); }

__device__ __forceinline__ void load(Lanes (&values)[kVectors], const Packed *from) {
#pragma unroll
    for (int i = 0; i < kVectors; i++) {
        const Packed *at = from + in_memory(i);
        values[i].packed = streaming ? __ldcs(at) : *at;
    }
}

// The sum of the lanes of a warp before this one; `sum` becomes that of all 32.
__device__ __forceinline__ float before_lane(float &sum) {
    float before = 0.0f;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const float other = __shfl_xor_sync(0xffffffff, sum, distance);
        if (threadIdx.x & distance) before += other;
        sum += other;
    }
    return before;
}

// Turns the sum of each of this thread's runs into that of all of the row before the run, of which
// `carry` comes before the tile. by_raking, only the warp that rakes keeps `carry`. The other two
// write to one half of `sums` while threads behind still read the other; `half` says which.
__device__ __forceinline__ void over_group(
    float (&runs)[kRuns], float &carry, float *sums, int &half) {
    const int x = threadIdx.x;
    if (scan == by_raking) {
#pragma unroll
        for (int r = 0; r < kRuns; r++) sums[raked(r * block_size_x + x)] = runs[r];
        __syncthreads();
        if (x < 32) {
            float sum = 0.0f;
#pragma unroll 8
            for (int i = 0; i < kShare; i++) sum += sums[raked(x * kShare + i)];
            float before = carry + before_lane(sum);
            carry += sum;
#pragma unroll 8
            for (int i = 0; i < kShare; i++) {
                const int at = raked(x * kShare + i);
                const float own = sums[at];
                sums[at] = before;
                before += own;
            }
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < kRuns; r++) runs[r] = sums[raked(r * block_size_x + x)];
    } else if (scan == by_doubling) {
#pragma unroll
        for (int r = 0; r < kRuns; r++) sums[half * kSums + r * block_size_x + x] = runs[r];
        __syncthreads();
#pragma unroll
        for (int distance = 1; distance < block_size_x; distance *= 2) {
            const float *from = sums + half * kSums;
            half = 1 - half;
#pragma unroll
            for (int r = 0; r < kRuns; r++) {
                const int at = r * block_size_x + x;
                if (x >= distance) runs[r] += from[at - distance];
                sums[half * kSums + at] = runs[r];
            }
            __syncthreads();
        }
        const float *from = sums + half * kSums;
        half = 1 - half;
#pragma unroll
        for (int r = 0; r < kRuns; r++) {
            const int first = r * block_size_x;
            runs[r] = carry + (x > 0 ? from[first + x - 1] : 0.0f);
            carry += from[first + block_size_x - 1];
        }
    } else {
        float whole[kRuns];  // the sum of a warp's runs, then of the group's
#pragma unroll
        for (int r = 0; r < kRuns; r++) {
            whole[r] = runs[r];
            runs[r] = before_lane(whole[r]);
        }
        if (kWarps > 1) {
            float *held = sums + half * kWarpSums;
            half = 1 - half;
            const int warp = x / 32;
            if (x % 32 == 0)
#pragma unroll
                for (int r = 0; r < kRuns; r++) held[r * kWarps + warp] = whole[r];
            __syncthreads();
#pragma unroll
            for (int r = 0; r < kRuns; r++) {
                whole[r] = 0.0f;
#pragma unroll
                for (int w = 0; w < kWarps; w++) {
                    const float sum = held[r * kWarps + w];
                    if (w < warp) runs[r] += sum;
                    whole[r] += sum;
                }
            }
        }
#pragma unroll
        for (int r = 0; r < kRuns; r++) {
            runs[r] += carry;
            carry += whole[r];
        }
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
prefix_sum(float *sums, const float *matrix, int columns) {
    __shared__ __align__(16) Shared groups[block_size_y];
    Shared &shared = groups[threadIdx.y];
    const int row = blockIdx.x * block_size_y + threadIdx.y;
    const Packed *from = reinterpret_cast<const Packed *>(matrix + row * columns);
    Packed *to = reinterpret_cast<Packed *>(sums + row * columns);
    const int row_vectors = columns / vector;

    Lanes values[kVectors], following[kVectors];
    float carry = 0.0f;
    int half = 0;
    if (prefetch) load(following, from);
#pragma unroll 1
    for (int first = 0; first < row_vectors; first += kTileVectors) {
        if (prefetch) {
#pragma unroll
            for (int i = 0; i < kVectors; i++) values[i] = following[i];
            if (first + kTileVectors < row_vectors) load(following, from + first + kTileVectors);
        } else {
            load(values, from + first);
        }
        // A thread writes where it alone has read, here and below: one barrier for each way.
        if (kTransposed) {
#pragma unroll
            for (int i = 0; i < kVectors; i++) shared.tile[spaced(by_warp(i))] = values[i].packed;
            __syncthreads();
#pragma unroll
            for (int i = 0; i < kVectors; i++)
                values[i].packed = shared.tile[spaced(by_thread(i))];
        }

        float runs[kRuns];
#pragma unroll
        for (int r = 0; r < kRuns; r++) {
            runs[r] = 0.0f;
#pragma unroll
            for (int i = r * kRunItems; i < (r + 1) * kRunItems; i++) {
                runs[r] += values[i / vector].lane[i % vector];
                values[i / vector].lane[i % vector] = runs[r];
            }
        }
        over_group(runs, carry, shared.sums, half);
#pragma unroll
        for (int i = 0; i < items_per_thread; i++)
            values[i / vector].lane[i % vector] += runs[i / kRunItems];

        if (kTransposed) {
#pragma unroll
            for (int i = 0; i < kVectors; i++)
                shared.tile[spaced(by_thread(i))] = values[i].packed;
            __syncthreads();
#pragma unroll
            for (int i = 0; i < kVectors; i++) values[i].packed = shared.tile[spaced(by_warp(i))];
        }
#pragma unroll
        for (int i = 0; i < kVectors; i++) {
            Packed *at = to + first + in_memory(i);
            if (streaming)
                __stcs(at, values[i].packed);
            else
                *at = values[i].packed;
        }
    }
}
