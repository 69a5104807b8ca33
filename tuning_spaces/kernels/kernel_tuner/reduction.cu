// The sum of squares of each row of a float32 matrix with `columns` columns.
//
// block_size_x threads share a row, or the part of it that `split` leaves them; block_size_y such
// groups work side by side on other rows, each on rows_per_thread rows at once. With split > 1 the
// parts are added up atomically, so that sums must be 0 before. Sizes are multiples of what a block
// takes: no bounds are checked. reduction.py documents the parameters, which Kernel Tuner defines
// as macros.

enum Combine { by_shuffle, by_shared };
enum Load { plain, read_only, streaming };

constexpr int kThreads = block_size_x * block_size_y;
constexpr int kWarp = block_size_x < 32 ? block_size_x : 32;  // lanes of a warp that share a row
constexpr int kWarps = block_size_x / kWarp;
constexpr int kShared = combine == by_shared ? block_size_x : kWarps;

template <int width> struct Vector;
template <> struct Vector<1> { typedef float type; };
template <> struct Vector<2> { typedef float2 type; };
template <> struct Vector<4> { typedef float4 type; };
typedef Vector<vector>::type Packed;

union Lanes {
    Packed packed;
    float lane[vector];
};

__device__ __forceinline__ Packed fetch(const Packed *at) {
    return load == plain ? *at : load == read_only ? __ldg(at) : __ldcs(at);
}

__device__ __forceinline__ float over_warp(float value) {
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
        value += __shfl_down_sync(0xffffffff, value, distance, kWarp);
    return value;
}

// The sum over the block_size_x threads of a group; thread 0 of the group gets it.
__device__ __forceinline__ float over_group(float value, float *shared) {
    const int x = threadIdx.x;
    if (combine == by_shuffle) {
        value = over_warp(value);
        if (kWarps == 1) return value;
        if (x % kWarp == 0) shared[x / kWarp] = value;
        __syncthreads();
        // Every warp does this, so that no lane of a warp stays behind.
        return over_warp(x % kWarp < kWarps ? shared[x % kWarp] : 0.0f);
    }
    shared[x] = value;
    __syncthreads();
#pragma unroll
    for (int distance = block_size_x / 2; distance > 0; distance /= 2) {
        if (x < distance) shared[x] += shared[x + distance];
        __syncthreads();
    }
    return shared[0];
}

extern "C" __global__ void __launch_bounds__(kThreads)
reduction(float *sums, const float *matrix, int columns) {
    __shared__ float shared[block_size_y][rows_per_thread][kShared];
    const int part = columns / split;
    const long long first_row =
        ((long long)blockIdx.y * block_size_y + threadIdx.y) * rows_per_thread;
    const float *start = matrix + first_row * columns + blockIdx.x * part + threadIdx.x * vector;

    float partial[rows_per_thread][loads_in_flight] = {};
    constexpr int kStride = block_size_x * vector;
    for (int column = 0; column < part; column += kStride * loads_in_flight) {
        Lanes loaded[rows_per_thread][loads_in_flight];
#pragma unroll
        for (int r = 0; r < rows_per_thread; r++)
#pragma unroll
            for (int i = 0; i < loads_in_flight; i++)
                loaded[r][i].packed = fetch(reinterpret_cast<const Packed *>(
                    start + (long long)r * columns + column + i * kStride));
#pragma unroll
        for (int r = 0; r < rows_per_thread; r++)
#pragma unroll
            for (int i = 0; i < loads_in_flight; i++)
#pragma unroll
                for (int v = 0; v < vector; v++)
                    partial[r][i] += loaded[r][i].lane[v] * loaded[r][i].lane[v];
    }
#pragma unroll
    for (int r = 0; r < rows_per_thread; r++) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < loads_in_flight; i++) sum += partial[r][i];
        sum = over_group(sum, shared[threadIdx.y][r]);
        if (threadIdx.x == 0) {
            if (split == 1)
                sums[first_row + r] = sum;
            else
                atomicAdd(sums + first_row + r, sum);
        }
    }
}
