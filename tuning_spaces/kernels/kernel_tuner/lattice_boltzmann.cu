// One time step of a D2Q9 lattice-Boltzmann fluid in float32 with periodic borders.
//
// In each cell, the nine populations relax towards their equilibrium at the rate `omega` (BGK
// collision); then each moves to the next cell in its direction. `now` and `next` hold the
// populations before and after, direction by direction, height x width cells each. A block takes a
// rectangle of cells; a thread takes cells_x cells of each of cells_y rows, which lie block_size_y
// apart. Sizes are multiples of what a block takes: no bounds are checked. lattice_boltzmann.py
// documents the parameters, which Kernel Tuner defines as macros.

enum Arrangement { apart, side_by_side, in_vectors };
enum Exchange { direct, through_shared, with_halo };
enum Wrap { by_remainder, by_comparison };
enum Velocity { by_division, by_reciprocal };

constexpr int kDirections = 9;
constexpr int kRest = 4;  // the population that stays
constexpr int kThreads = block_size_x * block_size_y;
constexpr int kWidth = block_size_x * cells_x;
constexpr int kHeight = block_size_y * cells_y;
constexpr int kVector = arrangement == in_vectors ? cells_x : 1;

// Shared memory holds what moves along x in the rows at hand, or all of the rectangle and a border.
constexpr bool kShared = exchange == through_shared;
constexpr bool kHalo = exchange == with_halo;
constexpr int kHeldPlanes = kHalo ? kDirections : kShared ? 6 : 1;
constexpr int kHeldHeight = kHalo ? kHeight + 2 : kShared ? block_size_y : 1;
constexpr int kHeldWidth = kHalo ? kWidth + 2 : kShared ? kWidth : 1;

template <int floats> struct Packed;
template <> struct Packed<1> { typedef float type; };
template <> struct Packed<2> { typedef float2 type; };
template <> struct Packed<4> { typedef float4 type; };
typedef Packed<kVector>::type Vector;

union Lanes {
    Vector packed;
    float lane[kVector];
};

// Directions in rows of three: where a population moves along x and y, and its weight at rest.
__device__ __forceinline__ int x_of(int q) { return q % 3 - 1; }
__device__ __forceinline__ int y_of(int q) { return q / 3 - 1; }
__device__ __forceinline__ float weight(int q) {
    return q == kRest ? 4.0f / 9.0f : q % 2 ? 1.0f / 9.0f : 1.0f / 36.0f;
}

// The plane of shared memory for a direction that moves along x.
__device__ __forceinline__ int plane_of(int q) { return q / 3 * 2 + q % 3 / 2; }

// The first column of the block is 0.
__device__ __forceinline__ int column(int cell) {
    const int x = threadIdx.x;
    return arrangement == apart ? x + cell * block_size_x : x * cells_x + cell;
}

// Coordinates from -1 to size, across the border.
__device__ __forceinline__ int wrapped(int at, int size) {
    if (wrap == by_remainder) return (at + size) % size;
    return at < 0 ? at + size : at < size ? at : at - size;
}

template <typename T> __device__ __forceinline__ void put(T *at, T value) {
    if (streaming_stores)
        __stcs(at, value);
    else
        *at = value;
}

__device__ __forceinline__ void collide(float (&f)[kDirections], float omega) {
    float density = 0.0f, along_x = 0.0f, along_y = 0.0f;
#pragma unroll
    for (int q = 0; q < kDirections; q++) {
        density += f[q];
        if (x_of(q) != 0) along_x += x_of(q) * f[q];
        if (y_of(q) != 0) along_y += y_of(q) * f[q];
    }
    float ux, uy;
    if (velocity == by_reciprocal) {
        const float inverse = 1.0f / density;
        ux = along_x * inverse;
        uy = along_y * inverse;
    } else {
        ux = along_x / density;
        uy = along_y / density;
    }
    const float still = 1.0f - 1.5f * (ux * ux + uy * uy);
#pragma unroll
    for (int q = 0; q < kDirections; q++) {
        // The velocity in this direction; terms that are 0 are left out, which compilers may not.
        const float u = q == kRest       ? 0.0f
                        : x_of(q) == 0 ? y_of(q) * uy
                        : y_of(q) == 0 ? x_of(q) * ux
                                       : x_of(q) * ux + y_of(q) * uy;
        const float equilibrium = weight(q) * density * (still + u * (3.0f + 4.5f * u));
        f[q] += omega * (equilibrium - f[q]);
    }
}

// This thread's cells of a row; `from` is the block's first cell in it.
__device__ __forceinline__ void load(float (&f)[cells_x][kDirections], const float *from,
                                     int cells) {
#pragma unroll
    for (int q = 0; q < kDirections; q++)
#pragma unroll
        for (int j = 0; j < cells_x; j += kVector) {
            Lanes lanes;
            lanes.packed = *reinterpret_cast<const Vector *>(from + q * cells + column(j));
#pragma unroll
            for (int l = 0; l < kVector; l++) f[j + l][q] = lanes.lane[l];
        }
}

// A direction's populations of some cells side by side.
__device__ __forceinline__ void store(float *to, const float (&f)[cells_x][kDirections], int q,
                                      int j) {
    Lanes lanes;
#pragma unroll
    for (int l = 0; l < kVector; l++) lanes.lane[l] = f[j + l][q];
    put(reinterpret_cast<Vector *>(to), lanes.packed);
}

extern "C" __global__ void __launch_bounds__(kThreads, min_blocks)
lattice_boltzmann(float *__restrict__ next, const float *__restrict__ now, float omega, int width,
                  int height) {
    __shared__ float held[kHeldPlanes][kHeldHeight][kHeldWidth];
    const int left = blockIdx.x * kWidth, top = blockIdx.y * kHeight;
    const int cells = width * height;
    const int group = threadIdx.y;
    float f[cells_x][kDirections];

#pragma unroll
    for (int r = 0; r < cells_y; r++) {
        const int y = group + r * block_size_y;
        load(f, now + (top + y) * width + left, cells);
#pragma unroll
        for (int j = 0; j < cells_x; j++) collide(f[j], omega);

        if (kHalo) {
#pragma unroll
            for (int q = 0; q < kDirections; q++)
#pragma unroll
                for (int j = 0; j < cells_x; j++) held[q][y + 1][column(j) + 1] = f[j][q];
            continue;
        }
        if (kShared) {
            // Rotates the block's part of the row: what leaves it at one end comes in at the other.
            if (r > 0) __syncthreads();
#pragma unroll
            for (int q = 0; q < kDirections; q++)
#pragma unroll
                for (int j = 0; j < cells_x; j++)
                    if (x_of(q) != 0) held[plane_of(q)][group][column(j)] = f[j][q];
            __syncthreads();
#pragma unroll
            for (int q = 0; q < kDirections; q++)
#pragma unroll
                for (int j = 0; j < cells_x; j++)
                    if (x_of(q) != 0)
                        f[j][q] =
                            held[plane_of(q)][group][(column(j) + kWidth - x_of(q)) % kWidth];
        }
#pragma unroll
        for (int q = 0; q < kDirections; q++) {
            float *to = next + q * cells + wrapped(top + y + y_of(q), height) * width;
#pragma unroll
            for (int j = 0; j < cells_x; j += kVector) {
                const int first = left + column(j);
                // Where the rotated row's end lies among these cells; otherwise they are in place.
                const int end = x_of(q) > 0 ? left : left + kWidth - 1;
                const bool in_place =
                    x_of(q) == 0 || (kShared && (end < first || end >= first + kVector));
                if (in_place) {
                    store(to + first, f, q, j);
                } else {
#pragma unroll
                    for (int l = 0; l < kVector; l++) {
                        int x = first + l;
                        if (!kShared)
                            x = wrapped(x + x_of(q), width);
                        else if (x == end)
                            x = wrapped(left + (x_of(q) > 0 ? kWidth : -1), width);
                        put(to + x, f[j + l][q]);
                    }
                }
            }
        }
    }
    if (!kHalo) return;

    // The border, which other blocks collide too: two rows with the corners, then two columns.
    constexpr int kInRows = 2 * (kWidth + 2);
    for (int i = group * block_size_x + threadIdx.x; i < kInRows + 2 * kHeight; i += kThreads) {
        const int side = i - kInRows;
        const int row = side < 0 ? i / (kWidth + 2) * (kHeight + 1) : 1 + side / 2;
        const int place = side < 0 ? i % (kWidth + 2) : side % 2 * (kWidth + 1);
        const float *from = now + wrapped(top + row - 1, height) * width +
                            wrapped(left + place - 1, width);
        float outside[kDirections];
#pragma unroll
        for (int q = 0; q < kDirections; q++) outside[q] = from[q * cells];
        collide(outside, omega);
#pragma unroll
        for (int q = 0; q < kDirections; q++)
            held[q][kHalo ? row : 0][kHalo ? place : 0] = outside[q];
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < cells_y; r++) {
        const int y = group + r * block_size_y;
#pragma unroll
        for (int q = 0; q < kDirections; q++) {
            float *to = next + q * cells + (top + y) * width + left;
#pragma unroll
            for (int j = 0; j < cells_x; j++)
                f[j][q] = held[q][y + 1 - y_of(q)][column(j) + 1 - x_of(q)];
#pragma unroll
            for (int j = 0; j < cells_x; j += kVector) store(to + column(j), f, q, j);
        }
    }
}
