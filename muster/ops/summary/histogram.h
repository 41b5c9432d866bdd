// Counts of values in TensorBoard's buckets: limits grow by a tenth from 1e-12 to 1e20, mirrored
// for negative values.
#pragma once

#include <limits>
#include <vector>

namespace muster {

class Histogram {
 public:
  Histogram();
  void Add(double value);

  double min() const { return min_; }
  double max() const { return max_; }
  double count() const { return count_; }
  double sum() const { return sum_; }
  double sum_of_squares() const { return sum_of_squares_; }

  struct Bucket {
    double limit;  // values below it, and not below the limit before
    double count;
  };
  // Of several empty buckets in a row only the last is listed.
  std::vector<Bucket> Buckets() const;

 private:
  const std::vector<double>& limits_;
  std::vector<double> counts_;
  double min_ = std::numeric_limits<double>::max();
  double max_ = -std::numeric_limits<double>::max();
  double count_ = 0;
  double sum_ = 0;
  double sum_of_squares_ = 0;
};

}  // namespace muster
