// Layer normalisation of each row of a float32 matrix with 2048 columns.
//
// output = (input - mean) / sqrt(variance + epsilon) * scale + shift, mean and variance being those
// of the row. block_size_x threads share a row; block_size_y such groups work side by side, each on
// rows_in_turn rows one after another. The number of rows is a multiple of what a block takes: no
// bounds are checked. row_norm.py documents the parameters, which Kernel Tuner defines as macros.

enum Kept { in_registers, in_shared, reloaded };
enum Moments { two_pass, welford, sums };
enum Combine { by_shuffle, by_tree };
enum Weights { from_global, from_shared };

constexpr int kColumns = 2048;
constexpr float kEpsilon = 1e-5f;
constexpr int kThreads = block_size_x * block_size_y;
constexpr int kWarps = block_size_x / 32;  // that share a row
constexpr int kRowVectors = kColumns / vector;
constexpr int kVectors = kRowVectors / block_size_x;  // for one thread
constexpr bool kHeld = kept == in_registers;
constexpr bool kHeldInShared = kept == in_shared;
constexpr int kRegisters = kHeld ? kVectors : 1;
constexpr int kUnroll = kHeld ? kVectors : unroll_vectors;
constexpr bool kBarrier = combine == by_tree || kWarps > 1;

template <int width> struct Vector;
template <> struct Vector<1> { typedef float type; };
template <> struct Vector<2> { typedef float2 type; };
template <> struct Vector<4> { typedef float4 type; };
typedef Vector<vector>::type Packed;

union Lanes {
    Packed packed;
    float lane[vector];
};

// Of some of a row's values: their sum and that of their squares (or nothing), or their mean and
// the sum of squared deviations from it.
struct Pair {
    float first, second;
};

struct Shared {
    Packed row[kHeldInShared ? block_size_y : 1][kHeldInShared ? kRowVectors : 1];
    Packed scale[weights == from_shared ? kRowVectors : 1];
    Packed shift[weights == from_shared ? kRowVectors : 1];
    Pair pairs[block_size_y][combine == by_tree ? block_size_x : kWarps];
};

__device__ __forceinline__ Packed fetch(const Packed *at, bool for_the_last_time) {
    return streaming && for_the_last_time ? __ldcs(at) : *at;
}

// What two pairs say together, each of which stands for `each` values.
__device__ __forceinline__ Pair merged(Pair a, Pair b, float each) {
    Pair both;
    if (moments == welford) {
        const float apart = b.first - a.first;
        both.first = 0.5f * (a.first + b.first);
        both.second = a.second + b.second + 0.5f * each * apart * apart;
    } else {
        both.first = a.first + b.first;
        both.second = moments == sums ? a.second + b.second : 0.0f;
    }
    return both;
}

// The pair of all of `lanes` neighbouring lanes, for each of them.
__device__ __forceinline__ Pair over_lanes(Pair own, int lanes, float each) {
#pragma unroll
    for (int distance = 1; distance < lanes; distance *= 2) {
        Pair other;
        other.first = __shfl_xor_sync(0xffffffff, own.first, distance);
        other.second =
            moments == two_pass ? 0.0f : __shfl_xor_sync(0xffffffff, own.second, distance);
        own = merged(own, other, each);
        each *= 2.0f;
    }
    return own;
}

// The pair of a whole row, for each of the block_size_x threads of its group.
__device__ __forceinline__ Pair over_group(Pair own, Pair *pairs) {
    const int x = threadIdx.x;
    const float each = kColumns / block_size_x;
    if (combine == by_shuffle) {
        own = over_lanes(own, 32, each);
        if (kWarps == 1) return own;
        if (x % 32 == 0) pairs[x / 32] = own;
        __syncthreads();
        return over_lanes(pairs[x % kWarps], kWarps, each * 32.0f);
    }
    pairs[x] = own;
    __syncthreads();
#pragma unroll
    for (int distance = block_size_x / 2; distance > 0; distance /= 2) {
        if (x < distance)
            pairs[x] = merged(
                pairs[x], pairs[x + distance], each * (block_size_x / 2 / distance));
        __syncthreads();
    }
    return pairs[0];
}

// A row's vector for the second or third time.
__device__ __forceinline__ Lanes again(
    const Lanes (&held)[kRegisters], const Packed *row, const Packed *from, int i, bool last) {
    if (kHeld) return held[kHeld ? i : 0];
    const int at = threadIdx.x + i * block_size_x;
    Lanes values;
    values.packed = kHeldInShared ? row[at] : fetch(from + at, last);
    return values;
}

extern "C" __global__ void __launch_bounds__(kThreads)
row_norm(float *output, const float *input, const float *scale, const float *shift) {
    __shared__ __align__(16) Shared shared;
    const int x = threadIdx.x, y = threadIdx.y;
    const Packed *scales = reinterpret_cast<const Packed *>(scale);
    const Packed *shifts = reinterpret_cast<const Packed *>(shift);
    if (weights == from_shared) {
        for (int i = y * block_size_x + x; i < kRowVectors; i += kThreads) {
            shared.scale[i] = scales[i];
            shared.shift[i] = shifts[i];
        }
        __syncthreads();
    }
    Packed *row = shared.row[kHeldInShared ? y : 0];
    Pair *pairs = shared.pairs[y];

#pragma unroll 1
    for (int turn = 0; turn < rows_in_turn; turn++) {
        const int number = (blockIdx.x * rows_in_turn + turn) * block_size_y + y;
        const Packed *from = reinterpret_cast<const Packed *>(input + number * kColumns);
        Packed *to = reinterpret_cast<Packed *>(output + number * kColumns);
        Lanes held[kRegisters];
        Pair own = {0.0f, 0.0f};
#pragma unroll kUnroll
        for (int i = 0; i < kVectors; i++) {
            const int at = x + i * block_size_x;
            Lanes values;
            values.packed = fetch(from + at, kept != reloaded);
            if (kHeld) held[kHeld ? i : 0] = values;
            if (kHeldInShared) row[at] = values.packed;
#pragma unroll
            for (int v = 0; v < vector; v++) {
                const float value = values.lane[v];
                if (moments == welford) {
                    const float apart = value - own.first;
                    own.first += apart / (float)(i * vector + v + 1);
                    own.second += apart * (value - own.first);
                } else {
                    own.first += value;
                    if (moments == sums) own.second += value * value;
                }
            }
        }
        if (kBarrier && turn > 0) __syncthreads();  // the last row's pairs have been read
        own = over_group(own, pairs);
        const float mean = moments == welford ? own.first : own.first * (1.0f / kColumns);
        float variance = own.second * (1.0f / kColumns);
        if (moments == sums) variance -= mean * mean;
        if (moments == two_pass) {
            own.first = 0.0f;
#pragma unroll kUnroll
            for (int i = 0; i < kVectors; i++) {
                const Lanes values = again(held, row, from, i, false);
#pragma unroll
                for (int v = 0; v < vector; v++) {
                    const float apart = values.lane[v] - mean;
                    own.first += apart * apart;
                }
            }
            if (kBarrier) __syncthreads();
            variance = over_group(own, pairs).first * (1.0f / kColumns);
        }
        const float factor = rsqrtf(variance + kEpsilon);
#pragma unroll kUnroll
        for (int i = 0; i < kVectors; i++) {
            const int at = x + i * block_size_x;
            Lanes values = again(held, row, from, i, true);
            Lanes scaling, shifting;
            scaling.packed = weights == from_shared ? shared.scale[at] : scales[at];
            shifting.packed = weights == from_shared ? shared.shift[at] : shifts[at];
#pragma unroll
            for (int v = 0; v < vector; v++)
                values.lane[v] =
                    (values.lane[v] - mean) * factor * scaling.lane[v] + shifting.lane[v];
            if (streaming)
                __stcs(to + at, values.packed);
            else
                to[at] = values.packed;
        }
    }
}
