// Samples for training that one second of processor time gives: JPEG images beside libjpeg-turbo
// alone and beside requests of one image, rows of csv, images of idx. Files are in the page cache.
#include "samples/samples.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <turbojpeg.h>
#include <vector>

#include "base/check.h"
#include "os/readable_tree.h"
#include "tensor/tensor.h"
#include "transform/pipeline.h"

namespace varda::bench {
namespace {

constexpr int kSide = 224;
constexpr int kImages = 1024;
constexpr std::size_t kBatch = 32;

/// Processor time of all threads: other programs change it little.
double seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "varda-bench-XXXXXX").string();
    CHECK(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  void put(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// A smooth image with some detail, as photographs have. About 20 kB for 224x224.
std::string jpeg(int number, int width = kSide, int height = kSide) {
  std::vector<unsigned char> pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c)
        pixels.push_back(static_cast<unsigned char>(
            128 + 60 * std::sin((x + number) * 0.05 * (c + 1)) + 40 * std::cos(x * y * 0.003) +
            (x * 7 + y * 13 + number) % 23));
    }
  }
  const std::unique_ptr<void, int (*)(tjhandle)> encoder(tjInitCompress(), tjDestroy);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  CHECK(tjCompress2(encoder.get(), pixels.data(), width, 0, height, TJPF_RGB, &out, &size,
                    TJSAMP_420, 90, 0) == 0);
  std::string bytes(reinterpret_cast<const char*>(out), size);
  tjFree(out);
  return bytes;
}

double libjpeg_alone(const std::vector<std::string>& files) {
  const std::unique_ptr<void, int (*)(tjhandle)> decoder(tjInitDecompress(), tjDestroy);
  std::vector<unsigned char> pixels(kSide * kSide * 3);
  const double begin = seconds();
  for (const std::string& file : files)
    CHECK(tjDecompress2(decoder.get(), reinterpret_cast<const unsigned char*>(file.data()),
                        file.size(), pixels.data(), kSide, 0, kSide, TJPF_RGB,
                        TJFLAG_ACCURATEDCT) == 0);
  return static_cast<double>(files.size()) / (seconds() - begin);
}

/// Prints a row: images a second that requests of one image become inputs of the model.
void measure_requests(const char* name, const std::string& file) {
  constexpr int kRequests = 500;
  transform::Declaration steps;
  steps.image = transform::ImageStep{};
  steps.image->scale = 1 / 255.0;
  const auto pipeline = transform::Pipeline::compile(
                            steps, {{"x", tensor::DType::kFp32, {-1, 3, kSide, kSide}}}, {}, {})
                            .value();
  const tensor::Tensor image = tensor::Tensor::of_strings({1}, {&file, 1}).value();
  const double begin = seconds();
  for (int i = 0; i < kRequests; ++i) CHECK(pipeline.before({{"image", image}}).ok());
  std::printf("| %s | %d | | %.0f |\n", name, kRequests, kRequests / (seconds() - begin));
  std::fflush(stdout);
}

/// Prints a row: time to open, and samples a second.
void measure(const char* name, const Folder& folder, const char* format, tensor::Shape input,
             const samples::Augment& augment) {
  const auto tree = os::open_readable_tree({folder.path()}).value();
  samples::Options options;
  options.format = format;
  options.input = {"x", tensor::DType::kFp32, std::move(input)};
  const double begin = seconds();
  const auto data =
      samples::Dataset::open(Context::background(), *tree, folder.path(), std::move(options))
          .value();
  const double open = seconds() - begin;
  std::vector<std::size_t> order(data->size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const double start = seconds();
  samples::Loader loader(*data, order, kBatch, augment, 1);
  while (loader.next(Context::background()).value()) {
  }
  std::printf("| %s | %zu | %.0f | %.0f |\n", name, data->size(), 1e3 * open,
              static_cast<double>(data->size()) / (seconds() - start));
  std::fflush(stdout);
}

void run() {
  std::printf("| samples | number | ms to open | samples/s |\n|---|---|---|---|\n");
  {
    const Folder folder;
    std::vector<std::string> files;
    for (int i = 0; i < kImages; ++i) {
      files.push_back(jpeg(i));
      folder.put("class" + std::to_string(i % 4) + "/" + std::to_string(i) + ".jpg", files.back());
    }
    std::printf("| JPEG 224x224, libjpeg-turbo alone | %d | | %.0f |\n", kImages,
                libjpeg_alone(files));
    const tensor::Shape input = {-1, 3, kSide, kSide};
    measure("JPEG 224x224", folder, "imagefolder", input, {});
    measure("JPEG 224x224, augmented", folder, "imagefolder", input,
            {.flip = true, .crop = 8, .jitter = 0.2});
    measure_requests("JPEG 224x224, in requests", files[0]);
    measure_requests("JPEG 640x480 to 224x224, in requests", jpeg(0, 640, 480));
  }
  {
    const Folder folder;
    std::string text = "a,b,c,d,e,f,g,h,label\n";
    for (int i = 0; i < 500'000; ++i) {
      for (int column = 0; column < 8; ++column)
        text += std::to_string((i * 31 + column * 17) % 9973) + ".25,";
      text += std::to_string(i % 10) + "\n";
    }
    folder.put("t.csv", text);
    measure("csv, 8 features", folder, "csv", {-1, 8}, {});
  }
  {
    const Folder folder;
    constexpr int kCount = 60'000;
    const auto header = [](char rank) {
      return std::string{0,
                         0,
                         8,
                         rank,
                         0,
                         0,
                         static_cast<char>(kCount >> 8 & 0xFF),
                         static_cast<char>(kCount & 0xFF)};
    };
    folder.put("train-images-idx3-ubyte",
               header(3) + std::string{0, 0, 0, 28, 0, 0, 0, 28} + std::string(kCount * 784, 'x'));
    folder.put("train-labels-idx1-ubyte", header(1) + std::string(kCount, '\1'));
    measure("idx 28x28", folder, "idx", {-1, 1, 28, 28}, {});
  }
}

}  // namespace
}  // namespace varda::bench

int main() { varda::bench::run(); }
