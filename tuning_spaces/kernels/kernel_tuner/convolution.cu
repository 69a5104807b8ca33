// 2-D convolution (correlation) of a float32 image with a 21 x 21 filter.
//
// output[y][x] = sum over i, j of input[y + i][x + j] * filter[i][j], where the input has a border
// of 20 pixels: (height + 20) x (width + 20). A thread computes tile_y x tile_x pixels that lie a
// block apart. No image has 2^31 pixels. convolution.py documents the parameters, which Kernel Tuner
// defines as macros.

enum InputMemory { from_global, through_shared };
enum FilterMemory { in_constant, in_shared, in_global };

constexpr int kFilter = 21;
constexpr int kThreads = block_size_x * block_size_y;
constexpr int kTileWidth = block_size_x * tile_x;
constexpr int kTileHeight = block_size_y * tile_y;
constexpr int kPitch = kTileWidth + kFilter - 1 + padding;
constexpr bool kStaged = input_memory == through_shared;
constexpr bool kFilterStaged = filter_memory == in_shared;

__constant__ float constant_filter[kFilter * kFilter];

__device__ __forceinline__ float fetch(const float *at) { return read_only ? __ldg(at) : *at; }

extern "C" __global__ void __launch_bounds__(kThreads)
convolution(float *output, const float *input, const float *filter, int width, int height) {
    __shared__ float tile[kStaged ? kTileHeight + kFilter - 1 : 1][kStaged ? kPitch : 1];
    __shared__ float staged_filter[kFilterStaged ? kFilter * kFilter : 1];
    const int thread = threadIdx.y * block_size_x + threadIdx.x;
    const int left = blockIdx.x * kTileWidth, top = blockIdx.y * kTileHeight;
    const int pitch = width + kFilter - 1;

    if (kFilterStaged)
        for (int i = thread; i < kFilter * kFilter; i += kThreads) staged_filter[i] = filter[i];
    if (kStaged) {
        for (int y = threadIdx.y; y < kTileHeight + kFilter - 1; y += block_size_y)
            for (int x = threadIdx.x; x < kTileWidth + kFilter - 1; x += block_size_x)
                if (top + y < height + kFilter - 1 && left + x < pitch)
                    tile[y][x] = fetch(input + (top + y) * pitch + left + x);
    }
    if (kStaged || kFilterStaged) __syncthreads();

    // Pixels beyond the image read the image's last row or column, and are not written.
    int rows[tile_y];
    int columns[tile_x];
#pragma unroll
    for (int i = 0; i < tile_y; i++)
        rows[i] = min(top + (int)threadIdx.y + i * block_size_y, height - 1) * pitch;
#pragma unroll
    for (int j = 0; j < tile_x; j++)
        columns[j] = min(left + (int)threadIdx.x + j * block_size_x, width - 1);

    float sums[tile_y][tile_x] = {};
    constexpr int kUnroll = unroll_filter;
    for (int v = 0; v < kFilter; v++) {
#pragma unroll kUnroll
        for (int u = 0; u < kFilter; u++) {
            const int tap = v * kFilter + u;
            const float weight = filter_memory == in_constant ? constant_filter[tap]
                                 : kFilterStaged              ? staged_filter[tap]
                                                              : fetch(filter + tap);
#pragma unroll
            for (int i = 0; i < tile_y; i++)
#pragma unroll
                for (int j = 0; j < tile_x; j++) {
                    const float pixel =
                        kStaged ? tile[threadIdx.y + i * block_size_y + v]
                                      [threadIdx.x + j * block_size_x + u]
                                : fetch(input + rows[i] + v * pitch + columns[j] + u);
                    sums[i][j] += pixel * weight;
                }
        }
    }
#pragma unroll
    for (int i = 0; i < tile_y; i++)
#pragma unroll
        for (int j = 0; j < tile_x; j++) {
            const int y = top + threadIdx.y + i * block_size_y;
            const int x = left + threadIdx.x + j * block_size_x;
            if (y < height && x < width) output[y * width + x] = sums[i][j];
        }
}
