// The same training as a C++ program without Rust.
#include <cstdio>

extern "C" float native_train(const char* artifacts, int steps);

int main(int, char** arguments) {
  std::printf("%.9g %.9g\n", native_train(arguments[1], 1), native_train(arguments[1], 20));
}
