// A sparse float32 matrix, its rows compressed (CSR), times 8 dense vectors at once.
//
// output[row][v] = sum over i in starts[row] .. starts[row + 1] of values[i] *
// vectors[columns[i]][v]. The matrix is square, and each of its rows begins and ends at a multiple
// of four stored values. threads_per_row lanes of a warp share a row; such groups work side by side
// on other rows, rows_in_turn times one after another. Blocks along x compute vectors_at_a_time of
// the 8 products each: those with the same rows run close together, and so find them in the cache.
// The number of rows is a multiple of what a block takes: no bounds are checked. sparse_matvec.py
// documents the parameters, which Kernel Tuner defines as macros.

enum RowOrder { neighbouring, interleaved };
enum Load { read_only, streaming };
enum Combine { by_shuffle, by_halves, by_shared };

constexpr int kVectors = 8;
constexpr int kGroups = block_size_x / threads_per_row;  // rows at a time
constexpr int kTogether = vectors_at_a_time < 4 ? vectors_at_a_time : 4;  // that one load takes
constexpr int kLoads = vectors_at_a_time / kTogether;
constexpr bool kThroughShared = combine == by_shared;

template <int lanes> struct Vector;
template <> struct Vector<1> { typedef float type; };
template <> struct Vector<2> { typedef float2 type; };
template <> struct Vector<4> { typedef float4 type; };
typedef Vector<vector>::type Packed;
typedef Vector<kTogether>::type PackedElements;

// Stored values, or the columns that they lie in.
union Lanes {
    Packed packed;
    float value[vector];
    int column[vector];
};

// Of one column or row: an element of each of the vectors.
union Elements {
    PackedElements packed[kLoads];
    float of[vectors_at_a_time];
};

struct Shared {
    PackedElements around[window_columns > 0 ? window_columns : 1][kLoads];
    // A group's partial sums are padded, against conflicts between groups.
    float partial[kThroughShared ? vectors_at_a_time : 1][kThroughShared ? kGroups : 1]
                 [threads_per_row + 1];
};

__device__ __forceinline__ Lanes stored(const void *at) {
    const Packed *from = static_cast<const Packed *>(at);
    Lanes lanes;
    lanes.packed = load == streaming ? __ldcs(from) : __ldg(from);
    return lanes;
}

__device__ __forceinline__ Elements elements(
    const Shared &shared, int window_start, const float *vectors, int column) {
    Elements taken;
    const unsigned inside = column - window_start;
    if (window_columns > 0 && inside < window_columns) {
#pragma unroll
        for (int i = 0; i < kLoads; i++) taken.packed[i] = shared.around[inside][i];
    } else {
        const float *from = vectors + column * kVectors;
#pragma unroll
        for (int i = 0; i < kLoads; i++)
            taken.packed[i] = __ldg(reinterpret_cast<const PackedElements *>(from) + i);
    }
    return taken;
}

// Writes a row's products, from the partial sums of its group's threads.
__device__ __forceinline__ void write_by_shuffle(float *to, Elements &sums, int lane) {
#pragma unroll
    for (int distance = threads_per_row / 2; distance > 0; distance /= 2)
#pragma unroll
        for (int v = 0; v < vectors_at_a_time; v++)
            sums.of[v] += __shfl_xor_sync(0xffffffff, sums.of[v], distance);
    if (lane > 0) return;
#pragma unroll
    for (int i = 0; i < kLoads; i++) reinterpret_cast<PackedElements *>(to)[i] = sums.packed[i];
}

// The same; a thread gives half of its sums away in exchange for the other half of a partner's, as
// long as it has several, which takes fewer shuffles.
__device__ __forceinline__ void write_by_halves(float *to, Elements &sums, int lane) {
    int held = vectors_at_a_time;
    int alike = threads_per_row;  // threads with the same vectors
#pragma unroll
    for (int distance = threads_per_row / 2; distance > 0; distance /= 2) {
        if (held == 1) {
            sums.of[0] += __shfl_xor_sync(0xffffffff, sums.of[0], distance);
            continue;
        }
        held /= 2;
        alike /= 2;
        const bool upper = lane & distance;
        if (upper) to += held;
#pragma unroll
        for (int v = 0; v < held; v++) {
            const float kept = upper ? sums.of[held + v] : sums.of[v];
            const float given = upper ? sums.of[v] : sums.of[held + v];
            sums.of[v] = kept + __shfl_xor_sync(0xffffffff, given, distance);
        }
    }
    if (lane % alike > 0) return;
#pragma unroll
    for (int v = 0; v < held; v++) to[v] = sums.of[v];
}

// Writes the products of all rows that the block has at a time, which begin at `to`.
__device__ __forceinline__ void write_by_shared(float *to, const Elements &sums, Shared &shared) {
    const int thread = threadIdx.x;
#pragma unroll
    for (int v = 0; v < vectors_at_a_time; v++)
        shared.partial[kThroughShared ? v : 0][kThroughShared ? thread / threads_per_row : 0]
                      [thread % threads_per_row] = sums.of[v];
    __syncthreads();
    for (int i = thread; i < kGroups * vectors_at_a_time; i += block_size_x) {
        const int group = i / vectors_at_a_time, v = i % vectors_at_a_time;
        const float *from = shared.partial[kThroughShared ? v : 0][kThroughShared ? group : 0];
        float sum = 0.0f;
#pragma unroll
        for (int t = 0; t < threads_per_row; t++) sum += from[t];
        to[group * kVectors + v] = sum;
    }
    __syncthreads();  // the next rows' sums take the same place
}

extern "C" __global__ void __launch_bounds__(block_size_x)
sparse_matvec(float *output, const float *values, const int *columns, const int *starts,
              const float *vectors, int rows) {
    __shared__ __align__(16) Shared shared;
    const int group = threadIdx.x / threads_per_row, lane = threadIdx.x % threads_per_row;
    output += blockIdx.x * vectors_at_a_time;
    vectors += blockIdx.x * vectors_at_a_time;

    // The elements that the block's rows use most: as many columns around the diagonal.
    int window_start = 0;
    if (window_columns > 0) {
        constexpr int kRows = kGroups * rows_in_turn;
        window_start = blockIdx.y * kRows + kRows / 2 - window_columns / 2;
        if (window_start < 0) window_start = 0;
        if (window_start > rows - window_columns) window_start = rows - window_columns;
        for (int i = threadIdx.x; i < window_columns * kLoads; i += block_size_x)
            shared.around[i / kLoads][i % kLoads] = __ldg(
                reinterpret_cast<const PackedElements *>(
                    vectors + (window_start + i / kLoads) * kVectors) + i % kLoads);
        __syncthreads();
    }

#pragma unroll 1
    for (int turn = 0; turn < rows_in_turn; turn++) {
        const int first_row = row_order == neighbouring
                                  ? (blockIdx.y * rows_in_turn + turn) * kGroups
                                  : blockIdx.y * kGroups + turn * (rows / rows_in_turn);
        const int row = first_row + group;
        const int end = __ldg(starts + row + 1);
        Elements sums;
#pragma unroll
        for (int v = 0; v < vectors_at_a_time; v++) sums.of[v] = 0.0f;
        constexpr int kUnroll = unroll_reads;
#pragma unroll kUnroll
        for (int i = __ldg(starts + row) + lane * vector; i < end; i += threads_per_row * vector) {
            const Lanes value = stored(values + i);
            const Lanes column = stored(columns + i);
#pragma unroll
            for (int w = 0; w < vector; w++) {
                const Elements taken = elements(shared, window_start, vectors, column.column[w]);
#pragma unroll
                for (int v = 0; v < vectors_at_a_time; v++)
                    sums.of[v] += value.value[w] * taken.of[v];
            }
        }
        if (combine == by_shuffle)
            write_by_shuffle(output + row * kVectors, sums, lane);
        else if (combine == by_halves)
            write_by_halves(output + row * kVectors, sums, lane);
        else
            write_by_shared(output + first_row * kVectors, sums, shared);
    }
}
