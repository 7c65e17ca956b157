# One image for all of Fairlane's processes; docker-compose.yml gives each its command.
FROM python:3.13-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY fairlane fairlane
COPY producer producer
COPY dispatcher dispatcher
COPY admin_ui admin_ui
RUN python -m venv /opt/fairlane && /opt/fairlane/bin/pip install --no-cache-dir '.[server,admin]'

FROM python:3.13-slim-bookworm
RUN useradd --system --uid 10001 --no-create-home fairlane && install -d -o fairlane -m 700 /files
COPY --from=build /opt/fairlane /opt/fairlane
ENV PATH=/opt/fairlane/bin:$PATH PYTHONUNBUFFERED=1
USER fairlane
ENTRYPOINT ["fairlane"]
CMD ["--help"]
