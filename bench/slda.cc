// Time of the streaming last layer: one update, and the layer from the state.
//
//   varda_bench_slda
//
// A line for each number of features, with 10 classes: the median microseconds of update(), the
// milliseconds of layer(), the bytes of the state.
#include "train/slda.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "base/rng.h"

int main() {
  using Clock = std::chrono::steady_clock;
  using varda::train::StreamingLda;
  constexpr std::int64_t kClasses = 10;
  const auto rng = varda::seeded_rng(1);
  std::printf("%10s %12s %12s %12s\n", "features", "update us", "layer ms", "state bytes");
  for (const std::size_t features : {32UL, 64UL, 256UL, 512UL, 1280UL}) {
    StreamingLda lda(features);
    std::vector<float> sample(features);
    std::vector<double> micros;
    const int updates = features > 600 ? 400 : 2000;
    for (int i = 0; i < updates; ++i) {
      for (float& value : sample) value = static_cast<float>(rng->unit());
      const auto from = Clock::now();
      if (!lda.update(sample, i % kClasses).ok()) return 1;
      micros.push_back(std::chrono::duration<double, std::micro>(Clock::now() - from).count());
    }
    std::nth_element(micros.begin(), micros.begin() + updates / 2, micros.end());
    const auto from = Clock::now();
    if (!lda.layer(1e-4, kClasses).ok()) return 1;
    const double layer = std::chrono::duration<double, std::milli>(Clock::now() - from).count();
    std::printf("%10zu %12.2f %12.2f %12zu\n", features, micros[micros.size() / 2], layer,
                lda.encode().size());
  }
  return 0;
}
