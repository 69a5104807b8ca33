// Depthwise 2-D convolution (correlation) of a batch of float32 images, a 7 x 7 filter a channel.
//
// output[n][y][x][c] = sum over v, u of input[n][y + v][x + u][c] * filter[v][u][c]: channels come
// last, and the input has a border of 6 pixels in all along both axes. A thread computes
// pixels_y x pixels_x neighbouring pixels of `vector` neighbouring channels; the threads of a block
// lie along channels, width and height. Sizes are multiples of what a block takes: no bounds are
// checked. No batch has 2^31 floats. depthwise_convolution.py documents the parameters, which
// Kernel Tuner defines as macros.

enum InputMemory { from_global, through_shared };
enum FilterMemory { in_global, in_shared };
enum Order { by_tap, by_filter_row, by_input_row };

constexpr int kFilter = 7;
constexpr int kThreads = block_size_x * block_size_y * block_size_z;
constexpr int kTileWidth = block_size_y * pixels_x + kFilter - 1;  // with the border
constexpr int kTileHeight = block_size_z * pixels_y + kFilter - 1;
constexpr int kWindow = pixels_x + kFilter - 1;  // pixels of an input row that a thread needs
constexpr bool kStaged = input_memory == through_shared;
constexpr bool kFilterStaged = filter_memory == in_shared;

template <int width> struct Vector;
template <> struct Vector<1> { typedef float type; };
template <> struct Vector<2> { typedef float2 type; };
template <> struct Vector<4> { typedef float4 type; };
typedef Vector<vector>::type Packed;

union Lanes {
    Packed packed;
    float lane[vector];
};

// What a thread reads of an image or a filter: vectors of its channels, which lie `across` apart
// along a row, rows lying `down` apart.
struct View {
    const Packed *first;
    int down, across;
};

__device__ __forceinline__ Lanes pixel(const View &input, int y, int x) {
    Lanes values;
    values.packed = input.first[y * input.down + x * input.across];
    return values;
}

__device__ __forceinline__ Lanes weight(const View &filter, int v, int u) {
    Lanes values;
    values.packed = filter.first[v * filter.down + u * filter.across];
    return values;
}

__device__ __forceinline__ void read_window(Lanes (&window)[kWindow], const View &input, int y) {
#pragma unroll
    for (int x = 0; x < kWindow; x++) window[x] = pixel(input, y, x);
}

__device__ __forceinline__ void accumulate(Lanes &sum, const Lanes &values, const Lanes &weights) {
#pragma unroll
    for (int c = 0; c < vector; c++) sum.lane[c] += values.lane[c] * weights.lane[c];
}

// One weight after another, for all pixels of the thread.
__device__ __forceinline__ void convolve_by_tap(
    Lanes (&sums)[pixels_y][pixels_x], const View &input, const View &filter) {
    constexpr int kUnroll = unroll_rows ? kFilter : 1;
#pragma unroll kUnroll
    for (int v = 0; v < kFilter; v++)
#pragma unroll
        for (int u = 0; u < kFilter; u++) {
            const Lanes weights = weight(filter, v, u);
#pragma unroll
            for (int i = 0; i < pixels_y; i++)
#pragma unroll
                for (int j = 0; j < pixels_x; j++)
                    accumulate(sums[i][j], pixel(input, i + v, j + u), weights);
        }
}

// Each weight is read once, an input row once for each row of the filter.
__device__ __forceinline__ void convolve_by_filter_row(
    Lanes (&sums)[pixels_y][pixels_x], const View &input, const View &filter) {
    constexpr int kUnroll = unroll_rows ? kFilter : 1;
#pragma unroll kUnroll
    for (int v = 0; v < kFilter; v++) {
        Lanes weights[kFilter];
#pragma unroll
        for (int u = 0; u < kFilter; u++) weights[u] = weight(filter, v, u);
#pragma unroll
        for (int i = 0; i < pixels_y; i++) {
            Lanes window[kWindow];
            read_window(window, input, i + v);
#pragma unroll
            for (int u = 0; u < kFilter; u++)
#pragma unroll
                for (int j = 0; j < pixels_x; j++)
                    accumulate(sums[i][j], window[j + u], weights[u]);
        }
    }
}

// Each input row is read once, a weight once for each row of output.
__device__ __forceinline__ void convolve_by_input_row(
    Lanes (&sums)[pixels_y][pixels_x], const View &input, const View &filter) {
    constexpr int kRows = pixels_y + kFilter - 1;
    constexpr int kUnroll = unroll_rows ? kRows : 1;
#pragma unroll kUnroll
    for (int y = 0; y < kRows; y++) {
        Lanes window[kWindow];
        read_window(window, input, y);
#pragma unroll
        for (int i = 0; i < pixels_y; i++) {
            const int v = y - i;
            if (v < 0 || v >= kFilter) continue;
#pragma unroll
            for (int u = 0; u < kFilter; u++) {
                const Lanes weights = weight(filter, v, u);
#pragma unroll
                for (int j = 0; j < pixels_x; j++)
                    accumulate(sums[i][j], window[j + u], weights);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
depthwise_convolution(float *output, const float *input, const float *filter, int channels,
                      int width, int height) {
    __shared__ Packed tile[kStaged ? kTileHeight : 1][kStaged ? kTileWidth : 1][block_size_x];
    __shared__ Packed taps[kFilterStaged ? kFilter * kFilter : 1][block_size_x];
    const int c = threadIdx.x, x = threadIdx.y, y = threadIdx.z;
    const int vectors = channels / vector;  // of a pixel
    const int channel = blockIdx.x * block_size_x + c;
    const int left = blockIdx.y * block_size_y * pixels_x;
    // Blocks along z take the images one after another, each from the top down.
    const int row = blockIdx.z * block_size_z * pixels_y;
    const int image = row / height, top = row % height;

    const int pitch = (width + kFilter - 1) * vectors;
    const int corner =
        (image * (height + kFilter - 1) + top) * pitch + left * vectors + channel;
    View from = {reinterpret_cast<const Packed *>(input) + corner, pitch, vectors};
    View weights = {
        reinterpret_cast<const Packed *>(filter) + channel, kFilter * vectors, vectors};
    if (kStaged) {
        for (int i = y; i < kTileHeight; i += block_size_z)
            for (int j = x; j < kTileWidth; j += block_size_y)
                tile[i][j][c] = from.first[i * pitch + j * vectors];
        from.first = &tile[0][0][c];
        from.down = kTileWidth * block_size_x;
        from.across = block_size_x;
    }
    if (kFilterStaged) {
        for (int i = y * block_size_y + x; i < kFilter * kFilter; i += block_size_y * block_size_z)
            taps[i][c] = weights.first[i * vectors];
        weights.first = &taps[0][c];
        weights.down = kFilter * block_size_x;
        weights.across = block_size_x;
    }
    if (kStaged || kFilterStaged) __syncthreads();
    from.first += y * pixels_y * from.down + x * pixels_x * from.across;

    Lanes sums[pixels_y][pixels_x];
#pragma unroll
    for (int i = 0; i < pixels_y; i++)
#pragma unroll
        for (int j = 0; j < pixels_x; j++)
#pragma unroll
            for (int k = 0; k < vector; k++) sums[i][j].lane[k] = 0.0f;
    if (order == by_tap)
        convolve_by_tap(sums, from, weights);
    else if (order == by_filter_row)
        convolve_by_filter_row(sums, from, weights);
    else
        convolve_by_input_row(sums, from, weights);

    Packed *to = reinterpret_cast<Packed *>(output) +
                 ((row + y * pixels_y) * width + left + x * pixels_x) * vectors + channel;
#pragma unroll
    for (int i = 0; i < pixels_y; i++)
#pragma unroll
        for (int j = 0; j < pixels_x; j++) to[(i * width + j) * vectors] = sums[i][j].packed;
}
