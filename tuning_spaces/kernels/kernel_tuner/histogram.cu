// The sum of the weights of the values in each of 1024 bins, in float32.
//
// sums[b] = sum of weights[i] over all i with values[i] * 1024 in [b, b + 1); values are in [0, 1).
// A block adds to copies of the histogram in shared memory, then adds the sum of its copies to
// sums, which must be 0 before. Blocks take rounds of vector * loads_in_flight items a thread in
// turn. `count` is a multiple of a round: no bounds are checked. histogram.py documents the
// parameters, which Kernel Tuner defines as macros.

enum Assignment { by_round, by_thread };
enum Layout { interleaved, apart, padded };
enum CopyFor { lanes, warps };
enum Combine { nothing, in_thread, in_lanes };
enum Flush { in_order, rotated };

constexpr int kBins = 1024;
constexpr int kGone = -1;  // the bin of an item whose weight another one has taken over
constexpr int kThreads = block_size_x;
constexpr int kItems = vector * loads_in_flight;
constexpr int kRound = kThreads * kItems;
constexpr int kRun = assignment == by_thread ? kItems : vector;  // a thread's adjacent items
constexpr int kCombinedLanes = 4;

// Steps in shared memory from a bin to the next of its copy, and to the same bin of the next copy.
constexpr int kBinStep = layout == interleaved ? copies : 1;
constexpr int kCopyStep = layout == interleaved ? 1 : kBins + (layout == padded);
constexpr int kHeld = (kBins - 1) * kBinStep + (copies - 1) * kCopyStep + 1;

template <int width> struct Vector;
template <> struct Vector<1> { typedef float type; };
template <> struct Vector<4> { typedef float4 type; };
typedef Vector<vector>::type Packed;

union Lanes {
    Packed packed;
    float lane[vector];
};

// Adjacent items of a thread that fall into one bin become one: the last of them.
__device__ __forceinline__ void combine_in_thread(int (&bins)[kItems], float (&added)[kItems]) {
#pragma unroll
    for (int i = 1; i < kItems; i++)
        if (i % kRun != 0 && bins[i] == bins[i - 1]) {
            added[i] += added[i - 1];
            bins[i - 1] = kGone;
        }
}

// The items of neighbouring lanes that fall into one bin become one: that of the lowest lane.
__device__ __forceinline__ void combine_in_lanes(int (&bins)[kItems], float (&added)[kItems]) {
#pragma unroll
    for (int i = 0; i < kItems; i++)
#pragma unroll
        for (int distance = 1; distance < kCombinedLanes; distance *= 2) {
            const int bin = __shfl_xor_sync(0xffffffff, bins[i], distance);
            const float weight = __shfl_xor_sync(0xffffffff, added[i], distance);
            if (bin == bins[i]) {
                added[i] += weight;
                if (threadIdx.x & distance) bins[i] = kGone;
            }
        }
}

extern "C" __global__ void __launch_bounds__(kThreads)
histogram(float *sums, const float *values, const float *weights, int count) {
    __shared__ float held[kHeld];
    const int thread = threadIdx.x;
    for (int i = thread; i < kHeld; i += kThreads) held[i] = 0.0f;
    __syncthreads();

    const int user = copy_for == lanes ? thread : thread / 32;
    float *own = held + user % copies * kCopyStep;
    constexpr int kThreadStep = assignment == by_thread ? kItems : vector;
    constexpr int kLoadStep = assignment == by_thread ? vector : kThreads * vector;
    const int rounds = count / kRound;
#pragma unroll 1
    for (int round = blockIdx.x; round < rounds; round += blocks) {
        const int first = round * kRound + thread * kThreadStep;
        Lanes loaded[loads_in_flight], weighing[loads_in_flight];
#pragma unroll
        for (int l = 0; l < loads_in_flight; l++) {
            const int at = first + l * kLoadStep;
            loaded[l].packed = *reinterpret_cast<const Packed *>(values + at);
            weighing[l].packed = *reinterpret_cast<const Packed *>(weights + at);
        }
        int bins[kItems];
        float added[kItems];
#pragma unroll
        for (int i = 0; i < kItems; i++) {
            bins[i] = (int)(loaded[i / vector].lane[i % vector] * kBins);
            added[i] = weighing[i / vector].lane[i % vector];
        }
        if (combine == in_thread) combine_in_thread(bins, added);
        if (combine == in_lanes) combine_in_lanes(bins, added);
#pragma unroll
        for (int i = 0; i < kItems; i++)
            if (combine == nothing || bins[i] != kGone)
                atomicAdd(own + bins[i] * kBinStep, added[i]);
    }
    __syncthreads();

    // Rotated, blocks begin with different bins, and neighbouring threads with different copies.
    const int first_bin = flush == rotated ? blockIdx.x * 32 : 0;
    const int first_copy = flush == rotated ? thread : 0;
#pragma unroll 1
    for (int i = thread; i < kBins; i += kThreads) {
        const int bin = (first_bin + i) % kBins;
        float sum = 0.0f;
#pragma unroll
        for (int c = 0; c < copies; c++)
            sum += held[bin * kBinStep + (first_copy + c) % copies * kCopyStep];
        atomicAdd(sums + bin, sum);
    }
}
