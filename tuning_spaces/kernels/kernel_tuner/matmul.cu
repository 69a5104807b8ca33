// C = A * B for row-major float32 matrices: C is m x n, A is m x k, B is k x n.
//
// A block computes a tile of block_size_y * tile_y rows and block_size_x * tile_x columns, walking
// along k in steps of tile_k through shared memory. Sizes are multiples of the tile's (no bounds are
// checked), and no matrix has 2^31 elements. matmul.py documents the parameters, which Kernel Tuner
// defines as macros.

enum Pipeline { direct, register_prefetch, double_buffer };

constexpr int kThreads = block_size_x * block_size_y;
constexpr int kRows = block_size_y * tile_y;
constexpr int kColumns = block_size_x * tile_x;
constexpr int kDepth = tile_k;
constexpr int kStages = pipeline == double_buffer ? 2 : 1;
constexpr int kVectorsA = kRows * kDepth / vector / kThreads;
constexpr int kVectorsB = kDepth * kColumns / vector / kThreads;

template <int width> struct Vector;
template <> struct Vector<1> { typedef float type; };
template <> struct Vector<2> { typedef float2 type; };
template <> struct Vector<4> { typedef float4 type; };
typedef Vector<vector>::type Packed;

union Lanes {
    Packed packed;
    float lane[vector];
};

struct Shared {
    float a[kStages][kDepth][kRows + padding];  // transposed, so that a thread reads along rows
    float b[kStages][kDepth][kColumns];
};

// What one thread carries from global to shared memory for one step along k.
struct Fragment {
    Lanes a[kVectorsA];
    Lanes b[kVectorsB];
};

__device__ __forceinline__ void load(
    Fragment &fragment, const float *a, const float *b, int n, int k, int step, int thread) {
#pragma unroll
    for (int i = 0; i < kVectorsA; i++) {
        const int at = (thread + i * kThreads) * vector;
        const int row = at / kDepth, depth = at % kDepth;
        fragment.a[i].packed =
            *reinterpret_cast<const Packed *>(a + row * k + step * kDepth + depth);
    }
#pragma unroll
    for (int i = 0; i < kVectorsB; i++) {
        const int at = (thread + i * kThreads) * vector;
        const int depth = at / kColumns, column = at % kColumns;
        fragment.b[i].packed = *reinterpret_cast<const Packed *>(
            b + (step * kDepth + depth) * n + column);
    }
}

__device__ __forceinline__ void store(
    Shared &shared, const Fragment &fragment, int stage, int thread) {
#pragma unroll
    for (int i = 0; i < kVectorsA; i++) {
        const int at = (thread + i * kThreads) * vector;
        const int row = at / kDepth, depth = at % kDepth;
#pragma unroll
        for (int v = 0; v < vector; v++) shared.a[stage][depth + v][row] = fragment.a[i].lane[v];
    }
#pragma unroll
    for (int i = 0; i < kVectorsB; i++) {
        const int at = (thread + i * kThreads) * vector;
        const int depth = at / kColumns, column = at % kColumns;
        *reinterpret_cast<Packed *>(&shared.b[stage][depth][column]) = fragment.b[i].packed;
    }
}

// Column j of a thread: next to column j - 1, or a block's width away from it.
__device__ __forceinline__ int column_of(int j) {
    return interleaved ? threadIdx.x + j * block_size_x : threadIdx.x * tile_x + j;
}

__device__ __forceinline__ void multiply(
    const Shared &shared, float (&sums)[tile_y][tile_x], int stage) {
    constexpr int kUnroll = unroll_k;
#pragma unroll kUnroll
    for (int depth = 0; depth < kDepth; depth++) {
        float a[tile_y], b[tile_x];
#pragma unroll
        for (int i = 0; i < tile_y; i++) a[i] = shared.a[stage][depth][threadIdx.y * tile_y + i];
#pragma unroll
        for (int j = 0; j < tile_x; j++) b[j] = shared.b[stage][depth][column_of(j)];
#pragma unroll
        for (int i = 0; i < tile_y; i++)
#pragma unroll
            for (int j = 0; j < tile_x; j++) sums[i][j] += a[i] * b[j];
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
matmul(float *c, const float *a, const float *b, int m, int n, int k) {
    __shared__ __align__(16) Shared shared;
    const int thread = threadIdx.y * block_size_x + threadIdx.x;
    const int steps = k / kDepth;
    const int first_row = blockIdx.y * kRows, first_column = blockIdx.x * kColumns;
    a += first_row * k;
    b += first_column;

    float sums[tile_y][tile_x] = {};
    Fragment next;
    if (pipeline != direct) {
        load(next, a, b, n, k, 0, thread);
        store(shared, next, 0, thread);
        __syncthreads();
    }
    for (int step = 0; step < steps; step++) {
        const bool more = step + 1 < steps;
        if (pipeline == direct) {
            load(next, a, b, n, k, step, thread);
            store(shared, next, 0, thread);
            __syncthreads();
            multiply(shared, sums, 0);
            __syncthreads();
        } else {
            // The loads are under way while this step is multiplied.
            if (more) load(next, a, b, n, k, step + 1, thread);
            multiply(shared, sums, step % kStages);
            if (pipeline == register_prefetch) __syncthreads();
            if (more) store(shared, next, (step + 1) % kStages, thread);
            __syncthreads();
        }
    }
    for (int i = 0; i < tile_y; i++) {
        float *row = c + (first_row + threadIdx.y * tile_y + i) * n + first_column;
#pragma unroll
        for (int j = 0; j < tile_x; j++) row[column_of(j)] = sums[i][j];
    }
}
