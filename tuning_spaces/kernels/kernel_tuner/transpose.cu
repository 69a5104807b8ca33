// output = input transposed: float32 matrices, row-major, the input rows x columns.
//
// A block of block_size_x threads takes tiles_per_block tiles of tile_y rows and tile_x columns of
// the input, one after another in the order of `walk`. The next tile is loaded into registers while
// the one at hand is written. Sizes are multiples of what a block takes: no bounds are checked. No
// matrix has 2^31 elements. transpose.py documents the parameters, which Kernel Tuner defines as
// macros.

enum Exchange { in_registers, padded_shared, swizzled_shared };
enum Walk { along_rows, along_columns, diagonal };

constexpr int kThreads = block_size_x;
constexpr int kArea = tile_y * tile_x;
constexpr int kEach = kArea / kThreads;  // elements of a tile that a thread takes
constexpr bool kDirect = exchange == in_registers;
constexpr int kPitch = tile_x + (exchange == padded_shared ? 1 : 0);
// A thread's elements: patches of vector_out rows and vector_in columns that it turns in registers,
// or vectors of a row, for which it writes vectors of a column that another thread loaded.
constexpr int kPatchRows = kDirect ? vector_out : 1;
constexpr int kPatches = kEach / (kPatchRows * vector_in);
constexpr int kPatchesAcross = tile_x / vector_in;
constexpr int kVectorsOut = kEach / vector_out;
constexpr int kVectorsDown = tile_y / vector_out;

template <int width> struct Vector;
template <> struct Vector<1> { typedef float type; };
template <> struct Vector<2> { typedef float2 type; };
template <> struct Vector<4> { typedef float4 type; };
typedef Vector<vector_in>::type PackedIn;
typedef Vector<vector_out>::type PackedOut;

union LanesIn {
    PackedIn packed;
    float lane[vector_in];
};

union LanesOut {
    PackedOut packed;
    float lane[vector_out];
};

struct Fragment {
    LanesIn in[kPatches][kPatchRows];
};

__device__ __forceinline__ PackedIn fetch(const PackedIn *at) {
    return streaming ? __ldcs(at) : *at;
}

__device__ __forceinline__ void put(float *to, const LanesOut &values) {
    PackedOut *at = reinterpret_cast<PackedOut *>(to);
    if (streaming)
        __stcs(at, values.packed);
    else
        *at = values.packed;
}

// Where the corner of the tile with this number in the walk lies.
__device__ __forceinline__ void locate(int number, int rows, int columns, int &top, int &left) {
    const int down = rows / tile_y, across = columns / tile_x;
    int row = number / across, column = number % across;
    if (walk != along_rows) {
        row = number % down;
        column = number / down;
        if (walk == diagonal) column = (column + row) % across;
    }
    top = row * tile_y;
    left = column * tile_x;
}

__device__ __forceinline__ void take(Fragment &fragment, const float *corner, int columns) {
#pragma unroll
    for (int p = 0; p < kPatches; p++) {
        const int patch = threadIdx.x + p * kThreads;
        const int row = patch / kPatchesAcross * kPatchRows;
        const int column = patch % kPatchesAcross * vector_in;
#pragma unroll
        for (int r = 0; r < kPatchRows; r++)
            fragment.in[p][r].packed =
                fetch(reinterpret_cast<const PackedIn *>(corner + (row + r) * columns + column));
    }
}

// A row's position in shared memory, with whole vectors moved so that a column crosses the banks.
__device__ __forceinline__ int at(int row, int column) {
    const int moved =
        exchange == swizzled_shared ? column ^ (row / vector_out * vector_in % tile_x) : column;
    return row * kPitch + moved;
}

__device__ __forceinline__ void share(float *tile, const Fragment &fragment) {
#pragma unroll
    for (int p = 0; p < kPatches; p++) {
        const int patch = threadIdx.x + p * kThreads;
        const int row = patch / kPatchesAcross, column = patch % kPatchesAcross * vector_in;
        if (exchange == padded_shared) {  // vectors would not be aligned
#pragma unroll
            for (int v = 0; v < vector_in; v++)
                tile[at(row, column + v)] = fragment.in[p][0].lane[v];
        } else {
            *reinterpret_cast<PackedIn *>(tile + at(row, column)) = fragment.in[p][0].packed;
        }
    }
}

__device__ __forceinline__ void write_shared(float *corner, const float *tile, int rows) {
#pragma unroll
    for (int i = 0; i < kVectorsOut; i++) {
        const int vector = threadIdx.x + i * kThreads;
        const int column = vector / kVectorsDown, row = vector % kVectorsDown * vector_out;
        LanesOut values;
#pragma unroll
        for (int v = 0; v < vector_out; v++) values.lane[v] = tile[at(row + v, column)];
        put(corner + column * rows + row, values);
    }
}

__device__ __forceinline__ void write_turned(float *corner, const Fragment &fragment, int rows) {
#pragma unroll
    for (int p = 0; p < kPatches; p++) {
        const int patch = threadIdx.x + p * kThreads;
        const int row = patch / kPatchesAcross * kPatchRows;
        const int column = patch % kPatchesAcross * vector_in;
#pragma unroll
        for (int c = 0; c < vector_in; c++) {
            LanesOut values;
#pragma unroll
            for (int r = 0; r < vector_out; r++)
                values.lane[r] = fragment.in[p][r % kPatchRows].lane[c];
            put(corner + (column + c) * rows + row, values);
        }
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
transpose(float *output, const float *input, int rows, int columns) {
    __shared__ __align__(16) float tile[kDirect ? 4 : tile_y * kPitch];
    const int number = blockIdx.x * tiles_per_block;
    int top, left;
    Fragment next;
    locate(number, rows, columns, top, left);
    take(next, input + top * columns + left, columns);
#pragma unroll 1
    for (int i = 0; i < tiles_per_block; i++) {
        float *corner = output + left * rows + top;
        const Fragment held = next;
        if (!kDirect) {
            if (i > 0) __syncthreads();
            share(tile, held);
        }
        if (i + 1 < tiles_per_block) {
            locate(number + i + 1, rows, columns, top, left);
            take(next, input + top * columns + left, columns);
        }
        if (kDirect) {
            write_turned(corner, held, rows);
        } else {
            __syncthreads();
            write_shared(corner, tile, rows);
        }
    }
}
