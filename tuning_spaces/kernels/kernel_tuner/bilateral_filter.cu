// Bilateral filter of a float32 image, which smooths but keeps edges: a window of 11 x 11 pixels.
//
// output[p] = sum of w(p, q) * image[q] / sum of w(p, q) over the pixels q of the window around p,
// w being exp(space_scale * |p - q|^2) * exp(range_scale * (image[p] - image[q])^2). Values lie in
// [0, 1]. The image comes padded: 5 pixels on every side, and 2 more on the right, so that rows and
// the windows of every fourth pixel start at a multiple of 16 bytes. A block takes pixels_x *
// pixels_y pixels for each of its threads. Sizes are multiples of the block's: no bounds are
// checked. bilateral_filter.py documents the parameters, which Kernel Tuner defines as macros.

enum Spacing { adjacent, block_apart };
enum WindowMemory { through_cache, through_shared };
enum RangeWeight { natural_exponential, power_of_two, polynomial, table };
enum SpatialWeight { from_array, factored, in_exponent };

constexpr int kRadius = 5;
constexpr int kTaps = 2 * kRadius + 1;
constexpr int kPadding = 2 * kRadius + 2;  // of a row
constexpr int kIntervals = 512;            // of the table
constexpr float kLog2E = 1.44269504f;
// Added to a float below 2^22, it leaves the nearest integer in the lowest bits.
constexpr float kRounding = 12582912.0f;
constexpr unsigned kRoundingBits = 0x4b400000u;

constexpr int kThreads = block_size_x * block_size_y;
constexpr int kTileWidth = block_size_x * pixels_x;
constexpr int kTileHeight = block_size_y * pixels_y;
constexpr bool kStaged = window_memory == through_shared;
constexpr bool kTable = range_weight == table;
constexpr int kSharedWidth = kStaged ? kTileWidth + kPadding : 4;
constexpr int kSharedHeight = kStaged ? kTileHeight + 2 * kRadius : 1;

// Adjacent pixels of a thread share the values of their windows, which registers hold row by row.
constexpr bool kAdjacent = spacing == adjacent;
constexpr int kApartX = kAdjacent ? 1 : block_size_x;
constexpr int kApartY = kAdjacent ? 1 : block_size_y;
constexpr int kRead = !kAdjacent ? 1 : vector < pixels_x ? vector : pixels_x;
constexpr int kReads = (pixels_x + 2 * kRadius + kRead - 1) / kRead;
constexpr int kValues = kAdjacent ? kReads * kRead : pixels_x * kTaps;
constexpr int kNextPixel = kAdjacent ? 1 : kTaps;
constexpr int kRows = kAdjacent ? kTaps + pixels_y - 1 : kTaps;
constexpr int kUnroll = unroll_rows == kTaps ? kRows : unroll_rows;

template <int width> struct Vector;
template <> struct Vector<1> { typedef float type; };
template <> struct Vector<2> { typedef float2 type; };
template <> struct Vector<4> { typedef float4 type; };

typedef Vector<vector>::type Staged;
typedef Vector<kRead>::type Read;

union Lanes {
    Read packed;
    float lane[kRead];
};

union Bits {
    float value;
    unsigned bits;
};

struct Sums {
    float weighted, weights;
};

// 2^exponent with a relative error below 3e-6, for exponents up to 0.
__device__ __forceinline__ float power(float exponent) {
    exponent = fmaxf(exponent, -126.0f);
    Bits rounded, result;
    rounded.value = exponent + kRounding;
    const float rest = exponent - (rounded.value - kRounding);
    result.value =
        0.99999919f +
        rest * (0.69312197f +
                rest * (0.24024981f + rest * (0.05591704f + rest * 0.00956051f)));
    result.bits += rounded.bits << 23;
    return result.value;
}

// The weight of a difference in value; `exponent` is that of the distance, or 0.
__device__ __forceinline__ float weight(
    float difference, float scale, float exponent, const float2 *lines) {
    if (kTable) {
        const float size = fabsf(difference);
        Bits rounded;
        rounded.value = size * kIntervals + kRounding;
        const float2 line = lines[rounded.bits - kRoundingBits];
        return line.x + line.y * size;
    }
    exponent += difference * difference * scale;
    return range_weight == natural_exponential ? expf(exponent)
           : range_weight == power_of_two      ? exp2f(exponent)
                                               : power(exponent);
}

// What a row of the window, row_offset below its first, adds to the sums of pixels side by side.
__device__ __forceinline__ void add_row(
    Sums (&sums)[pixels_x], const float (&centre)[pixels_x], const float (&values)[kValues],
    int row_offset, const float (&along)[kTaps], const float *window_weights,
    const float *axis_weights, float range_scale, float space_scale, const float2 *lines) {
    const float down = row_offset - kRadius;
    Sums row[pixels_x] = {};
#pragma unroll
    for (int i = 0; i < kTaps; i++) {
        const float across = i - kRadius;
        const float exponent = spatial_weight == in_exponent
                                   ? space_scale * (across * across + down * down)
                                   : 0.0f;
        const float factor = spatial_weight == from_array
                                 ? __ldg(window_weights + row_offset * kTaps + i)
                                 : along[i];
#pragma unroll
        for (int p = 0; p < pixels_x; p++) {
            const float value = values[p * kNextPixel + i];
            float both = weight(value - centre[p], range_scale, exponent, lines);
            if (spatial_weight != in_exponent) both *= factor;
            row[p].weighted += both * value;
            row[p].weights += both;
        }
    }
    const float factor = spatial_weight == factored ? __ldg(axis_weights + row_offset) : 1.0f;
#pragma unroll
    for (int p = 0; p < pixels_x; p++) {
        sums[p].weighted += factor * row[p].weighted;
        sums[p].weights += factor * row[p].weights;
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
bilateral_filter(float *output, const float *image, const float *range_lines,
                 const float *window_weights, const float *axis_weights, float range_scale,
                 float space_scale, int width) {
    __shared__ __align__(16) float tile[kSharedHeight][kSharedWidth];
    __shared__ float2 lines[kTable ? kIntervals + 1 : 1];
    const int x = threadIdx.x, y = threadIdx.y;
    const int pitch = width + kPadding;
    const int left = blockIdx.x * kTileWidth, top = blockIdx.y * kTileHeight;
    const float *corner = image + top * pitch + left;

    if (kStaged)
        for (int i = y; i < kSharedHeight; i += block_size_y)
            for (int j = x * vector; j < kSharedWidth; j += block_size_x * vector)
                *reinterpret_cast<Staged *>(&tile[i][j]) =
                    __ldg(reinterpret_cast<const Staged *>(corner + i * pitch + j));
    if (kTable)
        for (int i = y * block_size_x + x; i <= kIntervals; i += kThreads)
            lines[i] = reinterpret_cast<const float2 *>(range_lines)[i];
    if (kStaged || kTable) __syncthreads();

    if (range_weight != natural_exponential) {
        range_scale *= kLog2E;
        space_scale *= kLog2E;
    }
    float along[kTaps] = {};
    if (spatial_weight == factored)
#pragma unroll
        for (int i = 0; i < kTaps; i++) along[i] = __ldg(axis_weights + i);

    // This thread's first pixel in the tile, which is where its window starts in padded rows.
    const int column = kAdjacent ? x * pixels_x : x;
    const int row = kAdjacent ? y * pixels_y : y;
    const int stride = kStaged ? kSharedWidth : pitch;
    const float *from = (kStaged ? &tile[0][0] : corner) + row * stride + column;

    Sums sums[pixels_y][pixels_x] = {};
    float centre[pixels_y][pixels_x];
#pragma unroll
    for (int i = 0; i < pixels_y; i++)
#pragma unroll
        for (int j = 0; j < pixels_x; j++) {
            const float *at = from + (i * kApartY + kRadius) * stride + j * kApartX + kRadius;
            centre[i][j] = kStaged ? *at : __ldg(at);
        }

#pragma unroll kUnroll
    for (int r = 0; r < kRows; r++) {
        float values[kValues];
        if (kAdjacent)
#pragma unroll
            for (int k = 0; k < kReads; k++) {
                const Read *at = reinterpret_cast<const Read *>(from + r * stride) + k;
                Lanes lanes;
                lanes.packed = kStaged ? *at : __ldg(at);
#pragma unroll
                for (int v = 0; v < kRead; v++) values[k * kRead + v] = lanes.lane[v];
            }
#pragma unroll
        for (int i = 0; i < pixels_y; i++) {
            if (!kAdjacent)
#pragma unroll
                for (int k = 0; k < kValues; k++) {
                    const float *at =
                        from + (r + i * kApartY) * stride + k / kTaps * kApartX + k % kTaps;
                    values[k] = kStaged ? *at : __ldg(at);
                }
            const int row_offset = kAdjacent ? r - i : r;
            if (row_offset >= 0 && row_offset < kTaps)
                add_row(sums[i], centre[i], values, row_offset, along, window_weights,
                        axis_weights, range_scale, space_scale, lines);
        }
    }

#pragma unroll
    for (int i = 0; i < pixels_y; i++)
#pragma unroll
        for (int j = 0; j < pixels_x; j++)
            output[(top + row + i * kApartY) * width + left + column + j * kApartX] =
                sums[i][j].weighted / sums[i][j].weights;
}
